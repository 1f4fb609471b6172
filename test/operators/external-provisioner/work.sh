. "${lib%/*}/csi.sh"

bound() { contains Bound kubectl get persistentvolumeclaim "$1" -o 'jsonpath={.status.phase}'; }
no_volume() { ! kubectl get persistentvolume "$1"; }
holder() { kubectl -n csi get lease directories-test -o 'jsonpath={.spec.holderIdentity}'; }

driver
equal "topology.directories.test/node" "$(kubectl get csinode "$node" -o 'jsonpath={.spec.drivers[?(@.name=="directories.test")].topologyKeys[*]}')" "topology keys of the driver"
equal "$node" "$(kubectl get node "$node" -o 'jsonpath={.metadata.labels.topology\.directories\.test/node}')" "the node's label for the driver"
say "a CSI driver of ours (test/csi), in a DaemonSet, is registered by its socket in plugins_registry: CSINode and a label of the node say so"
sidecar external-provisioner
deployed csi csi-provisioner
wait_for 60 holder
say "three pods of it with the manifests that it comes with, of which one holds the Lease"

# A claim of a class that waits for a pod.
class waits; class kept '"volumeBindingMode": "Immediate", "reclaimPolicy": "Retain"'; class now '"volumeBindingMode": "Immediate"'
claim first waits
wait_for 30 contains WaitForFirstConsumer kubectl get events --field-selector involvedObject.name=first -o 'jsonpath={.items[*].reason}'
equal "" "$(kept)" "volumes of a claim that waits for a pod"
pod writer first
ready writer
in_pod writer 'echo hello >/volume/file'
volume=$(kubectl get persistentvolumeclaim first -o 'jsonpath={.spec.volumeName}') first=$(handle first)
equal "$first" "$(kept)" "the driver's volumes"
equal "topology.directories.test/node $node" "$(kubectl get persistentvolume "$volume" -o 'jsonpath={.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key} {.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]}')" "where the volume can be used"
contains external-provisioner.volume.kubernetes.io/finalizer kubectl get persistentvolume "$volume" -o 'jsonpath={.metadata.finalizers}' || fail "the volume has no finalizer of the provisioner"
equal hello "$(kubectl -n csi exec daemonset/directories -- cat "/var/lib/csi-directories/volumes/$first/data/file")" "the file, in the driver's directory"
say "a claim waits for its pod; then the scheduler chooses the node, external-provisioner has the driver make a volume there, and the pod writes a file into it"

# A copy.
claim copy waits 1Gi '"dataSource": {"kind": "PersistentVolumeClaim", "name": "first"}'
pod reader copy
ready reader
equal hello "$(in_pod reader 'cat /volume/file')" "the file in a clone"
say "a claim with the first one as its source gets a clone that has the file"

# Volumes of pods.
pod generic '{"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "waits", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}'
pod inline '{"csi": {"driver": "directories.test"}}'
ready generic; ready inline
in_pod generic 'echo 1 >/volume/file'; in_pod inline 'echo 1 >/volume/file'
generic=$(handle generic-volume)
equal 4 "$(kept | wc -w)" "the driver's volumes"
kubectl delete pod generic inline >/dev/null
wait_for 60 gone "$generic"
two() { [ "$(kept | wc -w)" = 2 ]; }
wait_for 30 two
say "a generic ephemeral volume and a CSI volume in a pod's spec end with their pods, on the driver too"

# Another leader.
was=$(holder)
kubectl -n csi delete pod "$was" --grace-period 0 --force >/dev/null 2>&1
claim second now
wait_for 90 bound second
[ "$(holder)" != "$was" ] || fail "the Lease is still held by $was, which is gone"
say "the pod that holds the Lease is killed: another takes it, and makes the volume of a claim of a class with volumeBindingMode Immediate"

# Deleting.
claim third kept
wait_for 30 bound third
second=$(handle second) third=$(handle third) retained=$(kubectl get persistentvolumeclaim third -o 'jsonpath={.spec.volumeName}')
kubectl delete persistentvolumeclaim first --wait=false >/dev/null
contains kubernetes.io/pvc-protection kubectl get persistentvolumeclaim first -o 'jsonpath={.metadata.finalizers}' || fail "the claim of a pod that runs is gone"
kubectl delete pod writer reader >/dev/null
kubectl delete persistentvolumeclaim copy second third >/dev/null
wait_for 60 no_volume "$volume"
wait_for 60 gone "$first"
wait_for 60 gone "$second"
equal "$third" "$(kept)" "volumes of the driver after all claims are deleted"
equal Released "$(kubectl get persistentvolume "$retained" -o 'jsonpath={.status.phase}')" "phase of the volume of a class with reclaimPolicy Retain"
say "with the claims their volumes are deleted, on the driver too, but for the one whose class has reclaimPolicy Retain, which is Released"
mounts() { kubectl -n csi exec daemonset/directories -- grep -c csi-directories/volumes/ /proc/self/mountinfo; }
! mounts >"$log/mounts" || fail "volumes are still mounted: $(cat "$log/mounts")"
say "no mount of it is left on the node"
