package client_test

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientfeatures "k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
	"skiff/internal/client"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

func makePods(t testing.TB, c kubernetes.Interface, n int) {
	t.Helper()
	var writers sync.WaitGroup
	const writing = 8
	for w := range writing {
		writers.Go(func() {
			for i := w; i < n; i += writing {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%05d", i), Labels: map[string]string{"app": "web", "number": fmt.Sprint(i)}},
					Spec: corev1.PodSpec{
						Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("64Mi"))}}}},
						Containers: []corev1.Container{{Name: "web", Image: "nginx:1.29", Ports: []corev1.ContainerPort{{ContainerPort: 80}},
							Env:          []corev1.EnvVar{{Name: "LIMIT", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.memory"}}}},
							VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
							Resources:    corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("128Mi"), "cpu": resource.MustParse("250m")}}}},
					},
				}
				if _, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
}

// podInformer starts a pod informer and waits until it has synced.
func podInformer(t testing.TB, c *client.Client) cache.SharedIndexInformer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	factory := c.Informers(client.InformerOptions{})
	informer := factory.Core().V1().Pods().Informer()
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		t.Fatal(err)
	}
	return informer
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestShare checks that two components' informers of the same pods hold the same objects, which take no memory twice.
func TestShare(t *testing.T) {
	const n = 5000
	server := apitest.Start(t, apitest.WithoutGuard())
	first, second := server.InProcess("first", "system:first", "system:masters"), server.InProcess("second", "system:second", "system:masters")
	makePods(t, first.Kubernetes(), n)

	before := heap()
	one := podInformer(t, first)
	withOne := heap()
	two := podInformer(t, second)
	withTwo := heap()
	https := podInformer(t, server.Remote("third", "system:third", "system:masters"))
	withThree := heap()
	t.Logf("per pod: first informer %d bytes, second %d, one over HTTPS %d", (withOne-before)/n, (withTwo-withOne)/n, (withThree-withTwo)/n)
	if shared, copied := withTwo-withOne, withThree-withTwo; shared*3 > copied {
		t.Errorf("a second informer in process took %d bytes, one over HTTPS %d", shared, copied)
	}

	if len(one.GetStore().ListKeys()) != n {
		t.Fatalf("the informer has %d pods", len(one.GetStore().ListKeys()))
	}
	for _, key := range one.GetStore().ListKeys() {
		a, _, errA := one.GetStore().GetByKey(key)
		b, _, errB := two.GetStore().GetByKey(key)
		c, _, errC := https.GetStore().GetByKey(key)
		if errA != nil || errB != nil || errC != nil {
			t.Fatal(errA, errB, errC)
		}
		if a != b {
			t.Fatalf("%s: two informers hold two objects", key)
		}
		if !equality.Semantic.DeepEqual(a, c) {
			t.Fatalf("%s: in process\n%v\nover HTTPS\n%v", key, a, c)
		}
	}

	// Metadata is that of the same objects.
	ctx, cancel := context.WithCancel(t.Context())
	factory := first.MetadataInformers(client.InformerOptions{})
	meta := factory.ForResource(pods)
	meta.Informer()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	factory.WaitForCacheSync(ctx.Done())
	t.Logf("per pod: metadata informer %d bytes", (heap()-withThree)/n)
	partial, err := meta.Lister().ByNamespace("default").Get("pod-00042")
	if err != nil {
		t.Fatal(err)
	}
	whole, _, err := one.GetStore().GetByKey("default/pod-00042")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := partial.(*metav1.PartialObjectMetadata).ObjectMeta, whole.(*corev1.Pod).ObjectMeta; !reflect.DeepEqual(got, want) {
		t.Errorf("metadata %v, of %v", got, want)
	} else if reflect.ValueOf(got.Labels).Pointer() != reflect.ValueOf(want.Labels).Pointer() {
		t.Error("metadata was copied")
	}

	// Changes are shared too.
	if _, err := first.Kubernetes().CoreV1().Pods("default").Patch(ctx, "pod-00042", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"app":"changed"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	changed := func(i cache.SharedIndexInformer) any {
		obj, _, _ := i.GetStore().GetByKey("default/pod-00042")
		if obj.(*corev1.Pod).Labels["app"] != "changed" {
			return nil
		}
		return obj
	}
	eventually(t, "both informers see the change", func() bool { return changed(one) != nil && changed(two) != nil })
	if changed(one) != changed(two) {
		t.Error("two informers hold two objects after a change")
	}
}

// TestWithoutWatchList makes informers list and then watch, as clients without WatchList do.
func TestWithoutWatchList(t *testing.T) {
	featurestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, false)
	eachWay(t, func(t *testing.T, c *client.Client, seen *requests) {
		makePods(t, c.Kubernetes(), 1200) // more than one page
		informer := podInformer(t, c)
		// The first list may be any state of the cache; what is missing follows.
		eventually(t, "all pods are seen", func() bool { return len(informer.GetStore().ListKeys()) == 1200 })
		if err := c.Kubernetes().CoreV1().Pods("default").Delete(t.Context(), "pod-00042", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the deletion is seen", func() bool { return len(informer.GetStore().ListKeys()) == 1199 })
	})
}

// TestNoRequests checks that informers in process make no requests.
func TestNoRequests(t *testing.T) {
	seen := &requests{}
	server := apitest.Start(t, apitest.WithServer(seen.watch))
	podInformer(t, server.InProcess(component, userName, "system:masters"))
	if n := seen.to("GET /api/v1/pods"); n != 0 {
		t.Errorf("%d requests for pods", n)
	}
	podInformer(t, server.Remote(component, userName, "system:masters"))
	if n := seen.to("GET /api/v1/pods"); n != 1 {
		t.Errorf("over HTTPS: %d requests for pods", n)
	}
}

// guardedServer starts a server and returns it with a function that returns the guard's reports.
func guardedServer(t *testing.T) (*apitest.Server, func() []string) {
	var mu sync.Mutex
	var problems []string
	server := apitest.Start(t, apitest.WithServer(func(o *apiserver.Options) {
		o.GuardShared = func(problem string) {
			mu.Lock()
			defer mu.Unlock()
			problems = append(problems, problem)
		}
	}))
	return server, func() []string {
		server.CheckShared()
		mu.Lock()
		defer mu.Unlock()
		defer func() { problems = nil }()
		return problems
	}
}

// TestGuard checks that a change in place of an informer's object is reported.
func TestGuard(t *testing.T) {
	server, problems := guardedServer(t)
	c := server.InProcess(component, userName, "system:masters")
	makePods(t, c.Kubernetes(), 4)
	informer := podInformer(t, c)
	pod := func(name string) *corev1.Pod {
		obj, _, err := informer.GetStore().GetByKey("default/" + name)
		if err != nil || obj == nil {
			t.Fatalf("%s: %v", name, err)
		}
		return obj.(*corev1.Pod)
	}
	caught := func(what, name string) {
		t.Helper()
		got := problems()
		if len(got) != 1 || !strings.Contains(got[0], "pods default/"+name) || !strings.Contains(got[0], "was changed in place") {
			t.Errorf("%s: reported %q", what, got)
		}
		if again := problems(); len(again) != 0 {
			t.Errorf("%s: reported again: %q", what, again)
		}
	}
	if got := problems(); len(got) != 0 {
		t.Fatalf("nobody changed anything: %q", got)
	}
	pod("pod-00000").Labels["app"] = "mine"
	caught("a label", "pod-00000")
	pod("pod-00001").Status.Conditions = append(pod("pod-00001").Status.Conditions, corev1.PodCondition{Type: "Mine"})
	caught("a condition", "pod-00001")
	pod("pod-00002").SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	caught("the kind", "pod-00002")

	// A handler that is slow, or changes the old version it is given.
	old := pod("pod-00003")
	if _, err := c.Kubernetes().CoreV1().Pods("default").Patch(t.Context(), "pod-00003", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"app":"changed"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change is seen", func() bool { return pod("pod-00003") != old })
	old.Spec.NodeName = "mine"
	caught("an old version", "pod-00003")

	// The last state of a deleted one.
	gone := make(chan *corev1.Pod, 1)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) { gone <- obj.(*corev1.Pod) }}); err != nil {
		t.Fatal(err)
	}
	if err := c.Kubernetes().CoreV1().Pods("default").Delete(t.Context(), "pod-00003", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	(<-gone).Spec.Containers[0].Image = "mine"
	caught("a deleted object", "pod-00003")

	// What typed clients return is the caller's own.
	own, err := c.Kubernetes().CoreV1().Pods("default").Get(t.Context(), "pod-00000", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	own.Labels["app"] = "own"
	if got := problems(); len(got) != 0 {
		t.Errorf("a copy was taken for the shared object: %q", got)
	}
}

// TestTransform checks that an informer's transform does not change the objects that others hold.
func TestTransform(t *testing.T) {
	server := apitest.Start(t)
	first, second := server.InProcess("first", "system:first", "system:masters"), server.InProcess("second", "system:second", "system:masters")
	makePods(t, first.Kubernetes(), 10)
	shared := podInformer(t, first)

	ctx, cancel := context.WithCancel(t.Context())
	factory := second.Informers(client.InformerOptions{})
	defer factory.Shutdown()
	defer cancel()
	stripped := factory.Core().V1().Pods().Informer()
	if err := stripped.SetTransform(func(obj any) (any, error) {
		obj.(*corev1.Pod).ManagedFields = nil
		return obj, nil
	}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	if err := factory.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		t.Fatal(err)
	}
	for _, obj := range stripped.GetStore().List() {
		if pod := obj.(*corev1.Pod); pod.ManagedFields != nil {
			t.Errorf("%s was not transformed", pod.Name)
		}
	}
	for _, obj := range shared.GetStore().List() {
		if pod := obj.(*corev1.Pod); pod.ManagedFields == nil {
			t.Errorf("%s was changed for everybody", pod.Name)
		}
	}
}

// TestQuantities reads quantities of shared objects from several goroutines; the race detector says whether that is safe.
func TestQuantities(t *testing.T) {
	server := apitest.Start(t, apitest.WithoutGuard()) // whose checksums read them too
	c := server.InProcess(component, userName, "system:masters")
	makePods(t, c.Kubernetes(), 50)
	informer := podInformer(t, c)
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for _, obj := range informer.GetStore().List() {
				pod := obj.(*corev1.Pod)
				if got := pod.Spec.Volumes[0].EmptyDir.SizeLimit.String(); got != "64Mi" {
					t.Errorf("size limit %s", got)
				}
				if got := pod.Spec.Containers[0].Env[0].ValueFrom.ResourceFieldRef.Divisor.String(); got != "1" && got != "0" {
					t.Errorf("divisor %s", got)
				}
				if _, err := pod.Marshal(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Wait()
}

func BenchmarkInformerSync(b *testing.B) {
	server := apitest.Start(b, apitest.WithoutGuard())
	ways := map[string]*client.Client{"in process": server.InProcess("bench", "system:bench", "system:masters"), "https": server.Remote("bench", "system:bench", "system:masters")}
	makePods(b, ways["in process"].Kubernetes(), 5000)
	podInformer(b, ways["in process"]) // the server keeps them decoded
	for name, c := range ways {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				podInformer(b, c)
			}
		})
	}
}
