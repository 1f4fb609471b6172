. "${lib%/*}/csi.sh"

attachment() { kubectl get volumeattachments -o "jsonpath={.items[*]$1}"; }
on_node() { kubectl -n csi exec daemonset/directories -- cat "/var/lib/csi-directories/volumes/$1/thing.json" | jq -c '.Nodes // {}'; }

driver attach
sidecar external-attacher external-provisioner
deployed csi csi-attacher; deployed csi csi-provisioner
class waits
claim one waits
pod first one
ready first
id=$(handle one)
equal "directories.test $node true" "$(attachment .spec.attacher) $(attachment .spec.nodeName) $(attachment .status.attached)" "driver, node and state of the VolumeAttachment"
equal "{\"attached\":\"$id\"}" "$(attachment .status.attachmentMetadata)" "what the driver wants to have told to the node"
equal '["external-attacher/directories-test"]' "$(attachment .metadata.finalizers)" "finalizers of the VolumeAttachment"
contains external-attacher/directories-test kubectl get persistentvolume -o 'jsonpath={.items[*].metadata.finalizers}' || fail "the volume has no finalizer of the attacher"
equal "{\"$node\":false}" "$(on_node "$id")" "where the driver has it attached"
equal "kubernetes.io/csi/directories.test^$id" "$(kubectl get node "$node" -o 'jsonpath={.status.volumesAttached[*].name}')" "volumes that are attached, by the node's status"
equal "kubernetes.io/csi/directories.test^$id" "$(kubectl get node "$node" -o 'jsonpath={.status.volumesInUse[*]}')" "volumes in use, by the node's status"
in_pod first 'echo hello >/volume/file'
say "for a pod the attach-detach controller makes a VolumeAttachment; external-attacher has the driver attach the volume and says so in its status, and the pod starts and writes a file"
kubectl delete pod first >/dev/null
none() { [ -z "$(kubectl get volumeattachments -o name)" ]; }
wait_for 60 none
equal "{}" "$(on_node "$id")" "where the driver has it attached after the pod"
in_status() { kubectl get node "$node" -o 'jsonpath={.status.volumesAttached[*].name}{.status.volumesInUse[*]}'; }
wait_for 30 eval '[ -z "$(in_status)" ]'
say "with the pod the VolumeAttachment is deleted, and the driver has the volume attached nowhere"

# Nobody attaches for a while.
kubectl -n csi scale deployment csi-attacher --replicas 0 >/dev/null
wait_for 60 eval '[ -z "$(kubectl -n csi get pods -l external-attacher=mock-driver -o name)" ]'
pod second one
wait_for 60 contains false attachment .status.attached
equal Pending "$(kubectl get pod second -o 'jsonpath={.status.phase}')" "phase of a pod whose volume nobody attaches"
kubectl -n csi scale deployment csi-attacher --replicas 1 >/dev/null
ready second 120s
equal hello "$(in_pod second 'cat /volume/file')" "the file"
say "while it is away a pod waits for its volume; when it is back the pod starts and has the file"
kubectl -n csi scale deployment csi-attacher --replicas 0 >/dev/null
wait_for 60 eval '[ -z "$(kubectl -n csi get pods -l external-attacher=mock-driver -o name)" ]'
kubectl delete pod second >/dev/null
wait_for 60 contains Z attachment .metadata.deletionTimestamp
equal "{\"$node\":false}" "$(on_node "$id")" "where the driver has it attached while nobody detaches"
kubectl -n csi scale deployment csi-attacher --replicas 1 >/dev/null
wait_for 120 none
equal "{}" "$(on_node "$id")" "where the driver has it attached"
kubectl delete persistentvolumeclaim one >/dev/null
wait_for 60 gone "$id"
say "a pod deleted while it is away leaves a VolumeAttachment with its finalizer; when it is back the volume is detached, and with the claim deleted"
