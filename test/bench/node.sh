#!/usr/bin/env bash
# Measures a node of skiff's and one of upstream's side by side, in one run, with real containers, and prints a table for docs/performance.md.
#   test/bench/node.sh [ROUNDS]      upstream is built from its modules into build/upstream on first use (about 20 minutes)
# Each round runs upstream (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy), then `skiff up`, each alone and in
# namespaces of its own. Both use the containerd that skiff carries, unpacked, configured and started by skiff, with the image present. Skiff attaches its
# pods to the network itself; for upstream CNI's own plugins make the same.
set -euo pipefail
self=$(readlink -f "$0")
cd "$(dirname "$self")/../.."
up=${UPSTREAM_DIR:-$PWD/build/upstream} skiff=${SKIFF:-$PWD/bin/skiff} kubectl=$PWD/bin/kubectl
few=3 many=30 rest=30 # pods, pods, seconds at rest
starts=${STARTS:-3} fewTimes=${FEW_TIMES:-5} manyTimes=${MANY_TIMES:-2} # how often each is measured in a round

now() { date +%s.%N; }
since() { awk "BEGIN{printf \"%.3f\", $(now)-$1}"; }
median() { sort -n | awk '{v[NR]=$1} END{print NR%2 ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2}'; }
report() { printf '%s\t%s\t%s\n' "$1" "$2" less >> "$work/$system.$round"; echo "$system: $1: $2" >&2; }
total() { local kb=0 p; for p in $(running); do kb=$((kb + $(awk -v k="$1:" '$1==k{print $2}' "/proc/$p/$2"))); done; awk "BEGIN{printf \"%.1f\", $kb/1000}"; }
ticks() { local t=0 p; for p in $(running); do t=$((t + $(awk '{print $14+$15}' "/proc/$p/stat"))); done; echo $t; }
spent() { # processor seconds of all there is: pods, containerd and shims, which are in groups, and what is measured, which is not
  local v1=/sys/fs/cgroup/cpuacct$group/cpuacct.usage v2=/sys/fs/cgroup$group/cpu.stat groups
  if [ -e "$v1" ]; then groups=$(awk '{print $1/1e9}' "$v1"); else groups=$(awk '$1=="usage_usec"{print $2/1e6}' "$v2"); fi
  awk "BEGIN{print $groups + $(ticks)/100}"
}
running() { # the processes of what is measured: not containerd, shims and pods
  local p exe
  for p in /proc/[0-9]*; do
    exe=$(readlink "$p/exe" || true)
    case $exe in "$skiff"|"$up"/etcd|"$up"/kube*) echo "${p#/proc/}";; esac
  done
}

# alone makes a machine of the namespaces this runs in: an interface with a default route, directories that are empty, and a disk that is, so that it
# does not matter how full that of the machine is.
apart="/run /var/lib/cni /etc/cni /opt/cni /var/lib/kubelet /var/log"
alone() {
  mount --make-rprivate /
  mount -t proc proc /proc
  local d; for d in $apart; do mkdir -p "$d"; mount -t tmpfs -o mode=755 tmpfs "$d"; done
  mkdir -p "$work/disk"
  truncate -s 8G "$work/image"
  mkfs.ext4 -q -F "$work/image"
  mount -o loop,noinit_itable "$work/image" "$work/disk"
  ip link set lo up
  ip link add uplink type veth peer name outside
  ip link set outside up
  ip link set uplink up
  ip address add 192.0.2.10/24 dev uplink
  ip route add default via 192.0.2.1
}

skiffUp() { "$skiff" up --name bench --data-dir "$dir" --hostname-override node-1 >/dev/null; }
deploy() { python3 test/bench/deploy.py "$kubectl" "$config" "$@"; }
warm() { deploy create warm 1 >/dev/null; deploy delete warm 1; } # with it the image is there

measurePods() {
  local i s0
  for i in $(seq "$fewTimes"); do deploy create few $few; deploy delete few $few; done | median > "$work/value"
  report "$few nginx, from Deployment created to all Ready (s)" "$(cat "$work/value")"
  for i in $(seq "$manyTimes"); do
    s0=$(spent)
    deploy create many $many
    awk "BEGIN{printf \"%.2f\\n\", $(spent)-$s0}" >> "$work/spent"
    [ "$i" = "$manyTimes" ] || deploy delete many $many
  done | median > "$work/value"
  report "$many nginx, likewise (s)" "$(cat "$work/value")"
  report 'processor time for that, of everything (s)' "$(median < "$work/spent")"
  rm "$work/spent"
  sleep 15
  local t0; t0=$(ticks)
  sleep $rest
  report "CPU at rest with $many pods (% of a core)" "$(awk "BEGIN{printf \"%.2f\", ($(ticks)-$t0)/$rest}")"
  report "memory with $many pods (MB resident)" "$(total VmRSS status)"
  report 'of it its own or its share (MB proportional)' "$(total Pss smaps_rollup)"
  report 'of it anonymous (MB)' "$(total RssAnon status)"
}

# startUpstream starts its programs, at the same time where they do not wait for another, and returns when the node is Ready.
startUpstream() {
  local api=https://127.0.0.1:6443 as="--kubeconfig $config" began; began=$(date +%s)
  "$up/etcd" --data-dir "$place/etcd" --log-level error > "$place/etcd.log" 2>&1 &
  "$up/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --secure-port 6443 --cert-dir "$place/certs" --service-account-key-file "$place/sa.key" --service-account-signing-key-file "$place/sa.key" --service-account-issuer https://kubernetes.default.svc --token-auth-file "$place/tokens.csv" --authorization-mode Node,RBAC --service-cluster-ip-range 10.43.0.0/16 > "$place/apiserver.log" 2>&1 &
  until curl -skf $api/readyz >/dev/null 2>&1; do sleep 0.02; done
  "$up/kube-controller-manager" $as --kube-api-qps 5000 --kube-api-burst 5000 --leader-elect=false --secure-port 0 --service-account-private-key-file "$place/sa.key" --root-ca-file "$place/certs/apiserver.crt" --allocate-node-cidrs --cluster-cidr 10.42.0.0/16 --service-cluster-ip-range 10.43.0.0/16 > "$place/controllers.log" 2>&1 &
  "$up/kube-scheduler" --config "$place/scheduler.yaml" > "$place/scheduler.log" 2>&1 &
  "$up/kubelet" $as --config "$place/kubelet.yaml" --hostname-override node-1 --node-ip 192.0.2.10 --root-dir "$place/kubelet" > "$place/kubelet.log" 2>&1 &
  "$up/kube-proxy" $as --hostname-override node-1 --proxy-mode nftables --cluster-cidr 10.42.0.0/16 --conntrack-max-per-core 0 > "$place/proxy.log" 2>&1 &
  until isReady; do sleep 0.02; done
}

# plugins has containerd use CNI's own plugins, with the range of addresses and the MTU of skiff's configuration, which it comes before.
plugins() {
  python3 - "$dir/cni/net.d" <<-'PYTHON'
	import json, os, sys
	own = json.load(open(sys.argv[1] + '/zz-skiff.conflist'))['plugins'][0]
	ipam = {'type': 'host-local', 'dataDir': os.path.dirname(sys.argv[1]) + '/bench', 'ranges': [[{'subnet': r}] for r in own['ranges']], 'routes': [{'dst': '0.0.0.0/0'}]}
	ptp = {'cniVersion': '1.0.0', 'name': 'bench', 'plugins': [{'type': 'ptp', 'mtu': own['mtu'], 'ipam': ipam}]}
	json.dump(ptp, open(sys.argv[1] + '/10-bench.part', 'w'))
	os.rename(sys.argv[1] + '/10-bench.part', sys.argv[1] + '/10-bench.conflist')
	PYTHON
}

isReady() { # as the kubelet that runs now says, not one before
  local is at
  read -r is at < <("$kubectl" --kubeconfig "$config" get node node-1 -o 'jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.lastHeartbeatTime}{end}' 2>/dev/null) || true
  [ "${is:-}" = True ] && [ "$(date -d "$at" +%s)" -ge "$began" ]
}

stopUpstream() { # killed, as kube-apiserver does not end once its etcd is gone
  local p; for p in $(running); do kill -9 "$p"; wait "$p" 2>/dev/null || true; done
}

upstream() {
  local place=$work/disk/upstream i t0
  config=$dir/admin.kubeconfig
  skiffUp
  "$skiff" image load --data-dir "$dir" build/images/nginx.tar >/dev/null
  warm
  "$skiff" stop --data-dir "$dir" --name bench >/dev/null # containerd goes on
  plugins
  mkdir -p "$place"
  config=$place/kubeconfig
  openssl genrsa -out "$place/sa.key" 2048 2>/dev/null
  echo 'token,admin,admin,"system:masters"' > "$place/tokens.csv"
  printf 'apiVersion: v1\nkind: Config\nclusters: [{name: u, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]\nusers: [{name: u, user: {token: token}}]\ncontexts: [{name: u, context: {cluster: u, user: u}}]\ncurrent-context: u\n' > "$config"
  printf 'apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nclientConnection: {kubeconfig: %s, qps: 5000, burst: 5000}\nleaderElection: {leaderElect: false}\n' "$config" > "$place/scheduler.yaml"
  cat > "$place/kubelet.yaml" <<-YAML
	apiVersion: kubelet.config.k8s.io/v1beta1
	kind: KubeletConfiguration
	authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
	authorization: {mode: AlwaysAllow}
	cgroupDriver: cgroupfs
	cgroupRoot: $group
	clusterDNS: [10.43.0.10]
	clusterDomain: cluster.local
	containerRuntimeEndpoint: unix:///run/skiff/${group#/skiff/}/containerd.sock
	failCgroupV1: false
	failSwapOn: false
	podLogsDir: $place/logs
	podPidsLimit: 4096
	YAML
  for i in $(seq "$starts"); do rm -rf "$place/etcd" "$place/certs"; t0=$(now); startUpstream; since "$t0"; echo; stopUpstream; done | median > "$work/value"
  report 'start on an empty disk to node Ready (s)' "$(cat "$work/value")"
  startUpstream; stopUpstream
  for i in $(seq "$starts"); do t0=$(now); startUpstream; since "$t0"; echo; [ "$i" = "$starts" ] || stopUpstream; done | median > "$work/value"
  report 'start on a used one to node Ready (s)' "$(cat "$work/value")"
  measurePods
  stopUpstream
}

skiff() {
  local i t0
  config=$dir/admin.kubeconfig
  for i in $(seq "$starts"); do t0=$(now); skiffUp; since "$t0"; echo; "$skiff" down --purge --data-dir "$dir" --name bench >/dev/null; done | median > "$work/value"
  report 'start on an empty disk to node Ready (s)' "$(cat "$work/value")"
  skiffUp; "$skiff" image load --data-dir "$dir" build/images/nginx.tar >/dev/null; warm
  for i in $(seq "$starts"); do "$skiff" down --data-dir "$dir" --name bench >/dev/null; t0=$(now); skiffUp; since "$t0"; echo; done | median > "$work/value"
  report 'start on a used one to node Ready (s)' "$(cat "$work/value")"
  measurePods
}

if [ "${1:-}" = inside ]; then
  work=$2 system=$3 round=$4 dir=$work/disk/data
  group=/skiff/$(printf %s "$dir" | sha256sum | cut -c1-8)
  alone
  trap '"$skiff" down --purge --data-dir "$dir" --name bench >/dev/null 2>&1 || true' EXIT
  $system
  exit
fi

rounds=${1:-1} shared=$(cd .. && pwd)/shared work=$(mktemp -d) made=() inside=
clean() {
  if [ -n "$inside" ]; then kill -9 "$inside" 2>/dev/null || true; sleep 1; fi
  # What upstream's kubelet leaves when it is killed; its processes ended with their namespace.
  find /sys/fs/cgroup -depth -type d -path "*/skiff/$(printf %s "$work/disk/data" | sha256sum | cut -c1-8)*" -exec rmdir {} + 2>/dev/null || true
  rm -rf "$work"
  [ ${#made[@]} = 0 ] || rmdir "${made[@]}" 2>/dev/null || true
}
trap clean EXIT
trap 'exit 1' INT TERM
"$shared/upstream/build.sh" "$up" etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy
command -v nft >/dev/null || { echo 'node.sh: kube-proxy needs the nft program: install nftables' >&2; exit 1; }
[ -e build/images/nginx.tar ] || { echo 'node.sh: make images builds the image that is missing' >&2; exit 1; }
for d in $apart; do [ -e "$d" ] || { mkdir "$d"; made+=("$d"); }; done
for round in $(seq "$rounds"); do
  for system in ${SYSTEMS:-upstream skiff}; do
    rm -f "$work/image"
    unshare --net --mount --pid --ipc --uts --fork --kill-child bash "$self" inside "$work" "$system" "$round" & inside=$!
    wait $inside # not in the foreground, so that a signal ends it all
    inside=
  done
done
[ -n "${SYSTEMS:-}" ] || python3 test/bench/table.py "$work" "$rounds" upstream skiff
echo "size of skiff: $(awk "BEGIN{printf \"%.1f\", $(stat -c %s "$skiff")/1e6}") MB"
