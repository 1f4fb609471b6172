package node

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestVolumesFull fills volumes of the default StorageClass on a small disk, which is also that of the API, until there is space for no more, and fills each of them. The pods
// get ENOSPC; the node, its neighbours and the API notice nothing.
func TestVolumesFull(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=1200m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	c := newClusterIn(t, disk)
	s := c.space(t)
	s.create(newPod("neighbour", testserver("main")))
	was := s.running("neighbour")
	s.claim("writer", "20Mi", "")
	s.create(s.claimed("writer", "writer", "n=0; while n=$((n+1)); echo $n >>/data/log && sync /data/log; do echo $n; sleep 0.1; done; echo failed; exit 1"))
	wasWriter := s.running("writer")
	const most = 12
	full := 0
	for i := range most {
		name := fmt.Sprint("full-", i)
		s.claim(name, "100Mi", "")
		s.create(s.claimed(name, name, "dd if=/dev/zero of=/data/file bs=1M 2>&1 | grep -o 'No space left on device'; "+forever))
		var refused bool
		s.await("the claim to get a volume or to be refused one", func() bool {
			refused = strings.Contains(strings.Join(s.events(name), "\n"), "ProvisioningFailed")
			return refused || s.get(name).Status.Phase == corev1.PodRunning
		})
		if refused {
			s.awaitEvent(name, "ProvisioningFailed", "code = ResourceExhausted desc = node node-1 has not enough disk space: the volume needs 100Mi more, and ", " are free beside the ", " that are kept in reserve")
			break
		}
		s.await("the volume to be full", func() bool {
			return strings.Contains(s.logs(name, &corev1.PodLogOptions{}), "No space left on device")
		})
		full++
	}
	t.Logf("%d volumes are full", full)
	if full < 3 || full == most {
		t.Errorf("there is space for %d volumes of 100Mi on a disk of 1200", full)
	}
	s.unharmed(was)
	s.unharmed(wasWriter)
	written := s.written()
	s.await("a pod to write on to its own volume", func() bool { return s.written() > written })
	for i := range full {
		if p := s.get(fmt.Sprint("full-", i)); p.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s is %s: %s", p.Name, p.Status.Phase, p.Status.Message)
		}
	}
	if is := nodeCondition(s.node(), corev1.NodeDiskPressure); is.Status != corev1.ConditionFalse {
		t.Errorf("the node has %+v", is)
	}
	if _, err := s.api.CoreV1().ConfigMaps(s.name).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "written"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// written returns up to where a pod has written a sequence to its volume, without a gap.
func (s *testNamespace) written() (n int) {
	s.Helper()
	for line := range strings.Lines(s.logs("writer", &corev1.PodLogOptions{})) {
		n++
		if line != fmt.Sprintln(n) {
			s.Fatalf("the pod that writes says %q after %d", line, n-1)
		}
	}
	return n
}
