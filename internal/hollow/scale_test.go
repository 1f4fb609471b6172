package hollow

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
)

// A thousand nodes register within seconds, run three thousand pods, and cost little while nothing happens.
func TestThousand(t *testing.T) {
	s := apitest.Start(t, apitest.WithoutGuard())
	const count, pods = 1000, 3000
	began := time.Now()
	nodes, _ := run(t, s.InProcess, Options{Count: count})
	waitRegistered(t, nodes)
	t.Logf("%d nodes registered after %v", count, time.Since(began))
	before := cpu(t)
	watched := time.Now()
	<-time.After(2 * time.Second)
	used := cpu(t) - before
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	t.Logf("at rest: %.1f %% of a core, %d goroutines, %d MB of heap, all with the server", 100*used.Seconds()/time.Since(watched).Seconds(), runtime.NumGoroutine(), m.HeapAlloc>>20)
	client, ctx := s.InProcess("test", "system:test", "system:masters").Kubernetes().CoreV1(), t.Context()
	began = time.Now()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < pods; i += 4 {
				if _, err := client.Pods("default").Create(ctx, podOn(fmt.Sprintf("hollow-%d", i%count), fmt.Sprintf("p-%d", i), nil), metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	created := time.Since(began)
	controllertest.Eventually(t, func() string {
		ready := 0
		for _, k := range nodes.ordered {
			k.mu.Lock()
			for _, r := range k.pods {
				if r.version > 0 {
					ready++
				}
			}
			k.mu.Unlock()
		}
		if ready < pods {
			return fmt.Sprintf("%d of %d pods running", ready, pods)
		}
		return ""
	})
	t.Logf("%d pods created after %v, running after %v", pods, created, time.Since(began))
}

func cpu(t *testing.T) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
