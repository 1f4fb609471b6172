//go:build linux

package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// watchEvent is a watch event with its revision.
type watchEvent struct {
	what    watch.EventType
	object  metav1.Object
	version int64
	at      time.Time // when it was received
}

// eventLog records all watch events of the resources that are checked.
type eventLog struct {
	t       *testing.T
	watched []*watched
	done    sync.WaitGroup

	mu    sync.Mutex
	log   []watchEvent // in the order of arrival; those of one resource are in order of revision
	count int          // the number of all events so far
}

// watched is a resource whose changes are recorded.
type watched struct {
	name     string
	api      rest.Interface
	sentinel func(patch []byte) (metav1.Object, error) // patches an object of the resource that exists only for this
	seen     int64                                     // guarded by record.mu
}

// newEventLog starts to record. It creates sentinel objects in the namespace, which no controller works on.
func newEventLog(t *testing.T, c kubernetes.Interface, namespace, node string) *eventLog {
	t.Helper()
	ctx := t.Context()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "sentinel"}
	labels := map[string]string{"app": "sentinel"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	finite := *template.DeepCopy()
	finite.Spec.RestartPolicy = corev1.RestartPolicyNever
	zero, suspend := int32(0), true
	pods, sets, jobs := c.CoreV1().Pods(namespace), c.AppsV1().ReplicaSets(namespace), c.BatchV1().Jobs(namespace)
	for _, make := range []func() error{
		func() error {
			_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: template.Spec}, metav1.CreateOptions{})
			return err
		},
		func() error {
			spec := appsv1.ReplicaSetSpec{Replicas: &zero, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}
			_, err := sets.Create(ctx, &appsv1.ReplicaSet{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := jobs.Create(ctx, &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Suspend: &suspend, Template: finite}}, metav1.CreateOptions{})
			return err
		},
	} {
		if err := make(); err != nil {
			t.Fatal(err)
		}
	}
	r := &eventLog{t: t, watched: []*watched{
		{name: "nodes", api: c.CoreV1().RESTClient(), sentinel: func(patch []byte) (metav1.Object, error) {
			return c.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
		}},
		{name: "pods", api: c.CoreV1().RESTClient(), sentinel: func(patch []byte) (metav1.Object, error) {
			return pods.Patch(ctx, meta.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}},
		{name: "replicasets", api: c.AppsV1().RESTClient(), sentinel: func(patch []byte) (metav1.Object, error) {
			return sets.Patch(ctx, meta.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}},
		{name: "jobs", api: c.BatchV1().RESTClient(), sentinel: func(patch []byte) (metav1.Object, error) {
			return jobs.Patch(ctx, meta.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}},
	}}
	watching, stop := context.WithCancel(context.Background())
	for _, w := range r.watched {
		r.done.Go(func() { r.follow(watching, w) })
	}
	t.Cleanup(func() {
		stop()
		r.done.Wait()
	})
	return r
}

// follow records a resource from its first object on. A watch that ends is resumed after its last revision.
func (r *eventLog) follow(ctx context.Context, w *watched) {
	from := "1" // nothing is older, and nothing is compacted while a test lasts
	for ctx.Err() == nil {
		stream, err := w.api.Get().Resource(w.name).VersionedParams(&metav1.ListOptions{Watch: true, ResourceVersion: from, AllowWatchBookmarks: true}, scheme.ParameterCodec).Watch(ctx)
		if err != nil {
			if ctx.Err() == nil {
				r.t.Errorf("watching %s from %s: %v", w.name, from, err)
			}
			return
		}
		for e := range stream.ResultChan() {
			object, ok := e.Object.(metav1.Object)
			if !ok {
				if ctx.Err() == nil {
					r.t.Errorf("watching %s from %s: %v", w.name, from, e.Object)
				}
				stream.Stop()
				return
			}
			from = object.GetResourceVersion()
			r.add(w, e.Type, object)
		}
		stream.Stop()
	}
}

func (r *eventLog) add(w *watched, what watch.EventType, object metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := watchEvent{what, object, parse(r.t, object.GetResourceVersion()), time.Now()}
	if w.seen = max(w.seen, h.version); what == watch.Bookmark {
		return
	}
	r.log = append(r.log, h)
	r.count++
}

// awaitMore waits until n more events were recorded, but not longer than atMost.
func (r *eventLog) awaitMore(n int, atMost time.Duration) {
	want := r.counted() + n
	for deadline := time.Now().Add(atMost); r.counted() < want && time.Now().Before(deadline); time.Sleep(500 * time.Microsecond) {
	}
}

func (r *eventLog) counted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// take returns all events up to now that were not taken before, in order of revision.
func (r *eventLog) take() []watchEvent {
	r.t.Helper()
	cut := int64(0)
	for _, w := range r.watched {
		object, err := w.sentinel(fmt.Appendf(nil, `{"metadata":{"annotations":{"chaos":"%d"}}}`, time.Now().UnixNano()))
		if err != nil {
			r.t.Fatal(err)
		}
		version := parse(r.t, object.GetResourceVersion())
		if cut == 0 {
			cut = version // those of the other sentinels are later
		}
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			r.mu.Lock()
			seen := w.seen
			r.mu.Unlock()
			if seen >= version {
				break
			}
			if time.Now().After(deadline) || r.t.Failed() {
				r.t.Fatalf("the watch of %s received events up to revision %d of %d", w.name, seen, version)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var taken, rest []watchEvent
	for _, h := range r.log {
		if h.version <= cut {
			taken = append(taken, h)
		} else {
			rest = append(rest, h)
		}
	}
	r.log = rest
	slices.SortStableFunc(taken, func(a, b watchEvent) int { return cmp.Compare(a.version, b.version) })
	return taken
}

func (h watchEvent) String() string {
	return fmt.Sprintf("%s %s %s %T %s/%s", strconv.FormatInt(h.version, 10), h.at.Format("15:04:05.000"), h.what, h.object, h.object.GetNamespace(), h.object.GetName())
}
