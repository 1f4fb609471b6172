//go:build linux

package chaos

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// syncTime is the duration of a sync on the slow disk.
const syncTime = 200 * time.Millisecond

// TestSlowDisk runs the program, from its first start, on a disk that takes 200 ms for every sync. Writes take that long; reads and watches
// do not, no request fails, and what was acknowledged survives a kill.
func TestSlowDisk(t *testing.T) {
	s := newServer(t, filepath.Join(t.TempDir(), "data"))
	s.wrapper = slowSyncs(t)
	began := time.Now()
	s.start()
	s.ready()
	t.Logf("ready after %v", time.Since(began))
	l := newLoad(t, s, pickSeed(t))
	reads := readUntil(t, s.client(), func() { l.awaitWrites(10 * writers) })
	l.stop()
	l.check()
	writes := writeSome(t, s.client())
	t.Logf("%d writes acknowledged; one alone takes %v to %v; %d reads take %v (median) to %v",
		l.done.Load(), writes[0], writes[len(writes)-1], len(reads), reads[len(reads)/2], reads[len(reads)-1])
	if writes[0] < syncTime {
		t.Errorf("a write was acknowledged after %v, before it was synced", writes[0])
	}
	if median := reads[len(reads)/2]; median > syncTime/2 {
		t.Errorf("reads take %v, as if they waited for the disk", median)
	}
	if n := l.unsure.Load(); n > 0 {
		t.Errorf("%d writes failed", n)
	}
	if n := l.watcher.opened(); n != 1 {
		t.Errorf("the watch was cut %d times", n-1)
	}
	noFailures(t, s.client())
	if t.Failed() {
		t.Fatal(s.tail())
	}
	s.kill()
	s.wrapper = nil
	s.start()
	s.ready()
	l.check()
	s.stop()
}

// slowSyncs returns the command that runs a program on a slow disk: strace delays each of its syncs, and nothing else.
func slowSyncs(t *testing.T) []string {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("strace, which makes the disk slow, is missing: make packages installs it")
	}
	syncs := "fsync,fdatasync,msync,sync_file_range"
	command := []string{strace, "-D", "-f", "--seccomp-bpf", "-qqq", "-o", "/dev/null", "-e", "trace=" + syncs,
		"-e", fmt.Sprintf("inject=%s:delay_enter=%d", syncs, syncTime.Microseconds())}
	if out, err := exec.Command(command[0], append(command[1:], "true")...).CombinedOutput(); err != nil {
		t.Fatalf("strace does not work here: %v\n%s", err, out)
	}
	return command
}

// readUntil lists and requests /readyz repeatedly while f runs, and returns the sorted durations of the lists.
func readUntil(t *testing.T, c kubernetes.Interface, f func()) (took []time.Duration) {
	t.Helper()
	stop := make(chan struct{})
	var asking sync.WaitGroup
	repeat := func(ask func()) {
		asking.Go(func() {
			for {
				ask()
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	repeat(func() {
		began := time.Now()
		if _, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("a read: %v", err)
		}
		took = append(took, time.Since(began))
	})
	repeat(func() {
		if out, err := c.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err != nil {
			t.Errorf("not ready: %v\n%s", err, out)
		}
	})
	func() {
		defer asking.Wait()
		defer close(stop)
		f()
	}()
	slices.Sort(took)
	return took
}

// writeSome writes objects one after the other, and returns the sorted durations.
func writeSome(t *testing.T, c kubernetes.Interface) (took []time.Duration) {
	t.Helper()
	for i := range 5 {
		began := time.Now()
		// Elsewhere than the load's, which knows all there is.
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("alone-%d", i)}}
		if _, err := c.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return took
}

// noFailures checks that the server has answered no request with a 5xx error.
func noFailures(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	metrics, err := c.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counted := false
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "apiserver_request_total{") {
			counted = true
			if strings.Contains(line, `code="5`) {
				t.Errorf("the server failed: %s", line)
			}
		}
	}
	if !counted {
		t.Error("no requests were counted")
	}
}
