# What work.sh of the sidecars of CSI drivers can call, beside lib.sh: they work for the driver in test/csi, on a node whose directories are its volumes.

# driver [attach]: runs the driver on the node, built here unless $program is it; its volumes are to be attached if asked for.
driver() {
  local dir attach=false; dir=$(mktemp -d)
  [ -z "${1:-}" ] || attach=true
  if [ -n "${program:-}" ]; then cp "$program" "$dir/csi"; else (cd "${lib%/*}/../csi" && CGO_ENABLED=0 "$go" build -o "$dir/csi" .); fi
  printf 'FROM busybox:latest\nCOPY csi /\nUSER 0:0\nENTRYPOINT ["/csi"]\n' >"$dir/Dockerfile"
  skiff image build --data-dir "$data" --tag skiff.internal/directories:v1 "$dir" >/dev/null
  rm -rf "$dir"
  sed "s/ATTACH/$attach/" "${lib%/*}/../csi/driver.yaml" | kubectl apply -f - >"$log/driver"
  kubectl -n csi rollout status daemonset/directories --timeout 120s >>"$log/rollout" || fail "the driver does not run: $(kubectl -n csi get pods 2>&1)"
  wait_for 60 registered
}

registered() { contains directories.test kubectl get csinodes -o 'jsonpath={.items[*].spec.drivers[*].name}'; }

# sidecar NAME...: installs programs of folders beside this one, with the manifests that they come with and that the folder changes.
sidecar() {
  local folder
  for folder; do (
    here=${lib%/*}/$folder
    . "$here/program"
    bin=${bin%/*}/$folder-$version source=${source%/*}/$folder-$version
    for p in $programs; do image "${p%%=*}" "${p%%=*}"; done
    install
  ); done
}

# kept: the ids of the driver's volumes; kept snapshots: of its snapshots.
kept() { kubectl -n csi exec daemonset/directories -- ls "/var/lib/csi-directories/${1:-volumes}" | tr '\n' ' ' | sed 's/ $//'; }

# handle CLAIM: the id of a claim's volume.
handle() { kubectl get persistentvolume "$(kubectl get persistentvolumeclaim "$1" -o 'jsonpath={.spec.volumeName}')" -o 'jsonpath={.spec.csi.volumeHandle}'; }

# class NAME [FIELDS]: a StorageClass of the driver.
class() { printf '{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "%s"}, "provisioner": "directories.test", %s}\n' "$1" "${2:-\"volumeBindingMode\": \"WaitForFirstConsumer\"}" | kubectl apply -f - >/dev/null; }

# claim NAME CLASS [SIZE [FIELDS]]: a claim for a volume.
claim() {
  printf '{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "%s"}, "spec": {"storageClassName": "%s", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "%s"}}%s}}\n' \
    "$1" "$2" "${3:-1Gi}" "${4:+, $4}" | kubectl apply -f - >/dev/null
}

# pod NAME VOLUME: a pod with a volume at /volume. VOLUME is the name of a claim, or the volume itself.
pod() {
  local volume=$2
  [[ $volume == \{* ]] || volume="{\"persistentVolumeClaim\": {\"claimName\": \"$volume\"}}"
  kubectl apply -f - >/dev/null <<YAML
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: work, image: "busybox:latest", imagePullPolicy: IfNotPresent, command: [sleep, "10000"], volumeMounts: [{name: volume, mountPath: /volume}]}]
  volumes: [$(echo "$volume" | jq -c '. + {name: "volume"}')]
YAML
}
ready() { kubectl wait --for=condition=Ready "pod/$1" --timeout "${2:-60s}" >>"$log/wait" || fail "pod $1 is not ready: $(kubectl get events --field-selector "involvedObject.name=$1" -o 'jsonpath={.items[*].message}' | tail -c 500)"; }
in_pod() { kubectl exec "$1" -- sh -c "$2"; } # POD COMMAND

# gone VOLUME [snapshots]: the driver has it no more.
gone() { [[ " $(kept "${2:-}") " != *" $1 "* ]]; }

node=$(kubectl get nodes -o 'jsonpath={.items[0].metadata.name}')
