package kubelet

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestHostsFileOfAnySize starts a container again that has made its hosts file larger than the machine's memory: the file is written anew and not read.
func TestHostsFileOfAnySize(t *testing.T) {
	k := &Kubelet{options: Options{RootDir: t.TempDir(), ClusterDomain: "cluster.local"}}
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "u"
	path, err := k.writeHosts(pod, []string{"10.0.0.5"})
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(path)
	if err != nil || filepath.Base(path) != "etc-hosts" {
		t.Fatal(path, err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, err := k.writeHosts(pod, []string{"10.0.0.5"}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != int64(len(want)) {
		t.Fatalf("%v %v, want %d bytes", info, err, len(want))
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(want) {
		t.Errorf("%q %v, want %q", got, err, want)
	}
}
