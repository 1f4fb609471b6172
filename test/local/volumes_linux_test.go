package local

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// localVolumes has a pod on the second node mount one claim of the default StorageClass and have another as a device. They stay to the end: nothing may be left of them then. It
// returns the names of the volumes.
func (c *cluster) localVolumes(t *testing.T) []string {
	manifest := filepath.Join(t.TempDir(), "claimed.yaml")
	if err := os.WriteFile(manifest, []byte(`
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: files}
spec: {accessModes: [ReadWriteOncePod], resources: {requests: {storage: 20Mi}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: raw}
spec: {accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: 20Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: claimed}
spec:
  nodeSelector: {kubernetes.io/hostname: ship-2}
  volumes:
  - {name: files, persistentVolumeClaim: {claimName: files}}
  - {name: raw, persistentVolumeClaim: {claimName: raw}}
  containers:
  - name: main
    image: skiff.internal/testserver
    imagePullPolicy: IfNotPresent
    volumeMounts: [{name: files, mountPath: /files}]
    volumeDevices: [{name: raw, devicePath: /dev/raw}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "apply", "-f", manifest)
	c.kubectl(t, "wait", "--for=condition=Ready", "pod/claimed", "--timeout=60s")
	if t.Failed() {
		t.Fatal(c.kubectl(t, "describe", "pod,pvc,pv"))
	}
	volumes := strings.Fields(c.kubectl(t, "get", "pv", "-o", "jsonpath={.items[*].metadata.name}"))
	if on := attached(volumes); len(volumes) != 2 || len(on) != 2 {
		t.Errorf("of the volumes %v these are attached: %v", volumes, on)
	}
	return volumes
}

// attached returns those of some volumes that are attached to loop devices of this machine.
func attached(volumes []string) (list []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		data, err := os.ReadFile(f)
		name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(strings.TrimSpace(string(data))), " (deleted)"), ".img")
		if err == nil && slices.Contains(volumes, name) {
			list = append(list, name)
		}
	}
	return list
}
