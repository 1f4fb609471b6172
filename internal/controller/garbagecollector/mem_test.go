package garbagecollector_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/garbagecollector"
	"skiff/skifftest"
)

func mem() (uint64, uint64, int) {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse, runtime.NumGoroutine()
}

func TestMem(t *testing.T) {
	server := skifftest.Start(t, skifftest.WithoutGuard())
	c := server.Client().CoreV1()
	time.Sleep(300 * time.Millisecond)
	h0, s0, g0 := mem()
	began := time.Now()
	stop := controllertest.Run(t, server, garbagecollector.New)
	o, _ := c.ConfigMaps("default").Create(t.Context(), configMap("o"), metav1.CreateOptions{})
	c.ConfigMaps("default").Create(t.Context(), configMap("d", ref("v1", "ConfigMap", o)), metav1.CreateOptions{})
	c.ConfigMaps("default").Delete(t.Context(), "o", metav1.DeleteOptions{})
	for {
		l, _ := c.ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		if len(l.Items) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("ready after %v", time.Since(began))
	time.Sleep(300 * time.Millisecond)
	h1, s1, g1 := mem()
	t.Logf("idle: heap %d kB stack %d kB goroutines %d", (int64(h1)-int64(h0))/1024, (int64(s1)-int64(s0))/1024, g1-g0)
	stop()
	time.Sleep(300 * time.Millisecond)
	h2, s2, g2 := mem()
	t.Logf("stopped: heap %d kB stack %d kB goroutines %d", (int64(h2)-int64(h0))/1024, (int64(s2)-int64(s0))/1024, g2-g0)
	owner, _ := c.ConfigMaps("default").Create(t.Context(), configMap("owner"), metav1.CreateOptions{})
	var wg sync.WaitGroup
	for w := range 10 {
		wg.Go(func() {
			for i := range 300 {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p-%d-%d", w, i), Labels: map[string]string{"app": "x", "tier": "y"}, OwnerReferences: []metav1.OwnerReference{ref("v1", "ConfigMap", owner)}}, Spec: template().Spec}
				if _, err := c.Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	time.Sleep(300 * time.Millisecond)
	h3, s3, _ := mem()
	stop = controllertest.Run(t, server, garbagecollector.New)
	time.Sleep(2 * time.Second)
	h4, s4, _ := mem()
	t.Logf("3000 pods: heap %d kB stack %d kB", (int64(h4)-int64(h3))/1024, (int64(s4)-int64(s3))/1024)
	began = time.Now()
	c.ConfigMaps("default").Delete(t.Context(), "owner", metav1.DeleteOptions{})
	for {
		l, _ := c.Pods("default").List(t.Context(), metav1.ListOptions{Limit: 1})
		if len(l.Items) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("3000 gone after %v", time.Since(began))
	stop()
}
