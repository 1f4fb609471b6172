. "${lib%/*}/csi.sh"

grow() { kubectl patch persistentvolumeclaim "${2:-one}" --type merge -p "{\"spec\": {\"resources\": {\"requests\": {\"storage\": \"$1\"}}}}"; }
capacity() { kubectl get persistentvolumeclaim one -o 'jsonpath={.status.capacity.storage} '; kubectl get persistentvolume "$(kubectl get persistentvolumeclaim one -o 'jsonpath={.spec.volumeName}')" -o 'jsonpath={.spec.capacity.storage}'; }
is() { [ "$(capacity)" = "$1" ]; }
seen() { kubectl get --raw "/api/v1/nodes/$node/proxy/stats/summary" | jq '.pods[] | select(.podRef.name == "'"$1"'") | .volume[] | select(.pvcRef.name == "one") | .capacityBytes'; }
sees() { [ "$(seen "$1")" = "$2" ]; }

driver
sidecar external-provisioner external-resizer
deployed csi csi-provisioner; deployed csi csi-resizer
class fixed '"volumeBindingMode": "Immediate"'
class grows '"volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true'
claim one grows
pod first one
ready first
in_pod first 'echo hello >/volume/file'
equal "1Gi 1Gi" "$(capacity)" "capacity of claim and volume"
wait_for 120 sees first $((1 << 30))
claim two fixed
wait_for 30 contains Bound kubectl get persistentvolumeclaim two -o 'jsonpath={.status.phase}'
refused 'only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize' grow 2Gi two

# While a pod uses it.
grow 2Gi >/dev/null
wait_for 180 is "2Gi 2Gi" # the kubelet looks at a pod that does not change about once a minute, as upstream
equal "" "$(kubectl get persistentvolumeclaim one -o 'jsonpath={.status.conditions[*].type}')" "conditions of the claim"
equal hello "$(in_pod first 'cat /volume/file')" "the file"
wait_for 120 sees first $((2 << 30))
equal 0 "$(kubectl get pod first -o 'jsonpath={.status.containerStatuses[0].restartCount}')" "restarts of the pod"
say "a claim of 1Gi asks for 2Gi while a pod uses it: external-resizer has the driver expand the volume, the kubelet has its node service do so, and claim, volume and the kubelet's figures of the pod say 2Gi; the file is there"
contains FileSystemResizeSuccessful kubectl get events -o 'jsonpath={.items[*].reason}' || fail "no event says that the kubelet has expanded the volume"
refused 'field can not be less than status.capacity' grow 1Gi
say "a claim of a class without allowVolumeExpansion is refused more, and any claim less than it has"

# While none does.
kubectl delete pod first >/dev/null
grow 3Gi >/dev/null
wait_for 60 is "2Gi 3Gi"
wait_for 30 contains FileSystemResizePending kubectl get persistentvolumeclaim one -o 'jsonpath={.status.conditions[*].type}'
pod second one
ready second
wait_for 60 is "3Gi 3Gi"
equal "" "$(kubectl get persistentvolumeclaim one -o 'jsonpath={.status.conditions[*].type}')" "conditions of the claim"
equal hello "$(in_pod second 'cat /volume/file')" "the file"
wait_for 120 sees second $((3 << 30))
say "with no pod the volume grows to 3Gi and the claim says FileSystemResizePending until a pod mounts it"
id=$(handle one)
kubectl delete pod second >/dev/null; kubectl delete persistentvolumeclaim one two >/dev/null
wait_for 60 gone "$id"
