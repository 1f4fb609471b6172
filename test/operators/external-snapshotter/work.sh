. "${lib%/*}/csi.sh"

snapshot() { printf 'apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot\nmetadata: {name: %s}\nspec: {volumeSnapshotClassName: %s, source: {persistentVolumeClaimName: %s}}\n' "$@" | kubectl apply -f -; } # NAME CLASS CLAIM
status() { kubectl get volumesnapshot "$1" -o "jsonpath={.status$2}"; }
content() { kubectl get volumesnapshotcontent "$(status "$1" .boundVolumeSnapshotContentName)" -o "jsonpath=$2"; }
restored() { claim "$1" waits "$3" "\"dataSource\": {\"apiGroup\": \"snapshot.storage.k8s.io\", \"kind\": \"VolumeSnapshot\", \"name\": \"$2\"}"; } # CLAIM SNAPSHOT SIZE

driver
sidecar external-provisioner external-snapshotter
kubectl wait --for=condition=Established crd --all --timeout 30s >/dev/null
deployed csi csi-provisioner; deployed kube-system snapshot-controller
kubectl rollout status statefulset/csi-snapshotter --timeout 120s >>"$log/rollout"
say "$(kubectl get crd -o name | wc -l) definitions are served; two pods of the snapshot-controller and csi-snapshotter run"
class waits
for policy in Delete Retain; do
  printf 'apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshotClass\nmetadata: {name: %s}\ndriver: directories.test\ndeletionPolicy: %s\n' "${policy,,}" $policy | kubectl apply -f - >/dev/null
done
claim one waits
pod writer one
ready writer
in_pod writer 'echo before >/volume/file; mkdir /volume/folder; echo deep >/volume/folder/file; chmod 600 /volume/folder/file'

# A snapshot.
snapshot taken delete one >/dev/null
wait_for 60 contains true status taken .readyToUse
in_pod writer 'echo after >/volume/file; rm -r /volume/folder'
id=$(content taken '{.status.snapshotHandle}')
equal "$id" "$(kept snapshots)" "the driver's snapshots"
equal "1Gi" "$(status taken .restoreSize)" "size of the snapshot"
equal "$(handle one)" "$(content taken '{.spec.source.volumeHandle}')" "source of the snapshot's content"
refused 'persistentVolumeClaimName is immutable' kubectl patch volumesnapshot taken --type merge -p '{"spec": {"source": {"persistentVolumeClaimName": "other"}}}'
say "a VolumeSnapshot of a claim is ready to use, with a content bound to it and a snapshot of the driver; then the pod changes the file"
snapshot missing delete nowhere >/dev/null
wait_for 60 contains 'snapshot controller failed to update missing' status missing .error.message
kubectl delete volumesnapshot missing >/dev/null
say "one of a claim that is not there says so in its status, and can be deleted"

# Restored.
restored two taken 2Gi
pod reader two
ready reader
equal "before deep 600" "$(in_pod reader 'echo $(cat /volume/file /volume/folder/file; stat -c %a /volume/folder/file)')" "files of the restored volume"
equal after "$(in_pod writer 'cat /volume/file')" "the file of the first volume"
restored small taken 500Mi
pod waiting small
wait_for 60 contains 'is less than the size' kubectl get events --field-selector involvedObject.name=small -o 'jsonpath={.items[*].message}'
kubectl delete pod waiting >/dev/null; kubectl delete persistentvolumeclaim small >/dev/null
say "a claim with the snapshot as its source gets a volume with the files as they were; a smaller one is refused by an event"

# Deleted.
snapshot stays retain one >/dev/null
wait_for 60 contains true status stays .readyToUse
stays=$(content stays '{.status.snapshotHandle}') left=$(status stays .boundVolumeSnapshotContentName)
kubectl delete pod writer >/dev/null; kubectl delete persistentvolumeclaim one >/dev/null
kubectl delete volumesnapshot taken stays --timeout 60s >/dev/null
wait_for 60 gone "$id" snapshots
equal "$stays" "$(kept snapshots)" "the driver's snapshots after all VolumeSnapshots are deleted"
say "with the VolumeSnapshot its content and the driver's snapshot are deleted; with deletionPolicy Retain both stay"

# One that is there already.
kubectl apply -f - >/dev/null <<YAML
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotContent
metadata: {name: known}
spec:
  driver: directories.test
  deletionPolicy: Delete
  source: {snapshotHandle: $stays}
  volumeSnapshotRef: {name: known, namespace: default}
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: known}
spec: {source: {volumeSnapshotContentName: known}}
YAML
wait_for 60 contains true status known .readyToUse
restored three known 1Gi
pod third three
ready third
equal after "$(in_pod third 'cat /volume/file')" "the file of the volume of a snapshot that was there"
say "a content made by hand for a snapshot that the driver has is bound, and restored"
volumes="$(handle two) $(handle three)"
kubectl delete volumesnapshotcontent "$left" --timeout 60s >/dev/null
kubectl delete pod reader third >/dev/null; kubectl delete persistentvolumeclaim two three >/dev/null
kubectl delete volumesnapshot known --timeout 60s >/dev/null
wait_for 60 gone "$stays" snapshots
for v in $volumes; do wait_for 60 gone "$v"; done
equal "" "$(kept)$(kept snapshots)" "what is left on the driver"
say "nothing is left on the driver"
