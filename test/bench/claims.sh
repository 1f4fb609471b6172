#!/usr/bin/env bash
# Measures how much later a pod is Ready that has a claim of the default StorageClass than one that has none, from creation, and prints both medians.
#   test/bench/claims.sh [TIMES]
set -euo pipefail
self=$(readlink -f "$0")
cd "$(dirname "$self")/../.."
skiff=${SKIFF:-$PWD/bin/skiff}
prepare() { [ -x "$skiff" ] || { echo "there is no $skiff: make all images" >&2; exit 1; }; }
. test/bench/alone.sh

ip link add uplink type veth peer name outside
ip link set outside up
ip link set uplink up
ip address add 192.0.2.10/24 dev uplink
ip route add default via 192.0.2.1
export HOME=$work
dir=$work/data times=${1:-10}
trap '"$skiff" down --purge --data-dir "$dir" --name bench >/dev/null; rm -rf "$work"' EXIT
"$skiff" image load --data-dir "$dir" build/images/busybox.tar >/dev/null
"$skiff" up --name bench --data-dir "$dir" --hostname-override node-1 >/dev/null
k() { bin/kubectl --kubeconfig "$dir/admin.kubeconfig" "$@"; }
until k get serviceaccount default >/dev/null 2>&1; do sleep 0.1; done

pod() { # NAME [claim]
	local mounts='' volumes=''
	if [ $# = 2 ]; then
		mounts=', volumeMounts: [{name: data, mountPath: /data}]' volumes="volumes: [{name: data, persistentVolumeClaim: {claimName: $1}}]"
		echo "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: $1}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
		echo ---
	fi
	cat <<-END
		apiVersion: v1
		kind: Pod
		metadata: {name: $1}
		spec:
		  terminationGracePeriodSeconds: 0
		  containers: [{name: main, image: busybox, imagePullPolicy: IfNotPresent, command: [sleep, "1000"]$mounts}]
		  $volumes
	END
}
ready() { # NAME [claim]: prints how many seconds it takes
	local began; began=$(date +%s.%N)
	pod "$@" | k create -f - >/dev/null
	k wait --for=condition=Ready "pod/$1" --timeout=60s >/dev/null
	awk "BEGIN{printf \"%.3f\\n\", $(date +%s.%N)-$began}"
	k delete pod "$1" --wait >/dev/null
	[ $# = 1 ] || k delete pvc "$1" >/dev/null
}
median() { sort -n | awk '{v[NR]=$1} END{print NR%2 ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }
ready warm >/dev/null
for i in $(seq "$times"); do
	ready "plain-$i" >>"$work/plain"
	ready "claimed-$i" claim >>"$work/claimed"
done
echo "pod without a claim, created to Ready (s): $(median <"$work/plain")"
echo "pod with a claim of the default class (s): $(median <"$work/claimed")"
