package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/controller"
)

// run runs loops against a server until the test ends.
func run(t *testing.T, server *apitest.Server, loops func(informers.SharedInformerFactory) []controller.Loop) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	factory := server.InProcess("kube-controller-manager", "system:kube-controller-manager", "system:masters").Informers(client.InformerOptions{})
	m, err := controller.New(controller.Options{Informers: factory, Loops: loops(factory),
		Client: func(account string) (*client.Client, error) {
			return server.InProcess(account, "system:"+account, "system:masters"), nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// copies returns a loop that creates as many copies of a config map as its label says, and never one more.
func copies(most *atomic.Int32, reconciles *atomic.Int32) func(informers.SharedInformerFactory) []controller.Loop {
	return func(f informers.SharedInformerFactory) []controller.Loop {
		maps := f.Core().V1().ConfigMaps()
		return []controller.Loop{{Name: "copies", Watch: []controller.Watch{{Informer: maps.Informer(), Type: &corev1.ConfigMap{}, Keys: func(before, after metav1.Object) []controller.Key {
			obj := after
			if obj == nil {
				obj = before
			}
			if of := obj.GetLabels()["copy-of"]; of != "" {
				return []controller.Key{{Namespace: obj.GetNamespace(), Name: of}}
			}
			return []controller.Key{controller.KeyOf(obj)}
		}}}, Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			reconciles.Add(1)
			original, err := maps.Lister().ConfigMaps(key.Namespace).Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			var want int
			fmt.Sscan(original.Labels["copies"], &want)
			there, _ := maps.Lister().ConfigMaps(key.Namespace).List(labels.SelectorFromSet(labels.Set{"copy-of": key.Name}))
			most.Store(max(most.Load(), int32(len(there))))
			var actions []controller.Action
			for range want - len(there) {
				actions = append(actions, controller.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					GenerateName: key.Name + "-", Namespace: key.Namespace, Labels: map[string]string{"copy-of": key.Name}}}))
			}
			for _, extra := range there[:max(len(there)-want, 0)] {
				actions = append(actions, controller.Delete(extra, metav1.DeleteOptions{}))
			}
			return controller.Decision{Actions: []controller.Action{controller.SlowStart(nil, actions...)}}
		}}}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// A key is not reconciled before the caches have observed what was written for it, so a loop never creates too many objects.
func TestNeverTooMany(t *testing.T) {
	server := apitest.Start(t)
	var most, reconciles atomic.Int32
	run(t, server, copies(&most, &reconciles))
	c := server.Client().CoreV1().ConfigMaps("default")
	if _, err := c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"copies": "50"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	count := func() int {
		list, err := c.List(t.Context(), metav1.ListOptions{LabelSelector: "copy-of=a"})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	eventually(t, "50 copies", func() bool { return count() == 50 })
	for i := range 20 { // changes keep coming while it is busy
		if err := c.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "copy-of=a", Limit: 5}); err != nil {
			t.Fatal(err)
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, i)
		if _, err := c.Patch(t.Context(), "a", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "50 copies again", func() bool { return count() == 50 })
	if most.Load() > 50 {
		t.Errorf("there were %d copies at a time", most.Load())
	}
	if _, err := c.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"copies":"3"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "3 copies", func() bool { return count() == 3 })
	t.Logf("reconciled %d times", reconciles.Load())
}

// A loop writes with its own identity.
func TestIdentityAndCause(t *testing.T) {
	server := apitest.Start(t)
	var most, reconciles atomic.Int32
	run(t, server, copies(&most, &reconciles))
	c := server.Client().CoreV1().ConfigMaps("default")
	if _, err := c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"copies": "1"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var made *corev1.ConfigMap
	eventually(t, "a copy", func() bool {
		list, err := c.List(t.Context(), metav1.ListOptions{LabelSelector: "copy-of=a"})
		if err != nil || len(list.Items) == 0 {
			return false
		}
		made = &list.Items[0]
		return true
	})
	if m := made.ManagedFields; len(m) != 1 || m[0].Manager != "copies" {
		t.Errorf("%+v", m)
	}
}

// A key whose reconcile fails or panics is requeued with back-off.
func TestRequeue(t *testing.T) {
	server := apitest.Start(t)
	var reconciles atomic.Int32
	done := make(chan struct{})
	run(t, server, func(f informers.SharedInformerFactory) []controller.Loop {
		return []controller.Loop{{Name: "clumsy", Watch: []controller.Watch{{Informer: f.Core().V1().ConfigMaps().Informer(), Type: &corev1.ConfigMap{}}}, Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			if key.Name != "x" {
				return controller.Nothing
			}
			switch reconciles.Add(1) {
			case 1:
				panic("on purpose")
			case 2:
				return controller.Decision{Err: errors.New("not now")}
			case 3:
				return controller.Decision{Actions: []controller.Action{controller.Call("fail", func(context.Context, *client.Client) error { return errors.New("no") })}}
			case 4:
				return controller.Decision{RequeueAfter: time.Millisecond}
			case 5:
				close(done)
			}
			return controller.Nothing
		}}}
	})
	if _, err := server.Client().CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("reconciled %d times", reconciles.Load())
	}
}

// Then gets the error of the actions, and SlowStart stops after a batch in which one failed.
func TestThen(t *testing.T) {
	server := apitest.Start(t)
	type result struct {
		err    error
		failed int
	}
	results := make(chan result, 1)
	run(t, server, func(f informers.SharedInformerFactory) []controller.Loop {
		return []controller.Loop{{Name: "then", Watch: []controller.Watch{{Informer: f.Core().V1().ConfigMaps().Informer(), Type: &corev1.ConfigMap{}}}, Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			if key.Name != "x" {
				return controller.Nothing
			}
			var calls []controller.Action
			for i := range 20 {
				calls = append(calls, controller.Call("call", func(context.Context, *client.Client) error {
					if i == 4 {
						return errors.New("the fifth fails")
					}
					return nil
				}))
			}
			failed := 0
			return controller.Decision{Actions: []controller.Action{controller.SlowStart(func(n int) { failed = n }, calls...)}, Then: func(err error) controller.Decision {
				results <- result{err, failed}
				return controller.Nothing
			}}
		}}}
	})
	if _, err := server.Client().CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r := <-results
	if r.err == nil || r.failed != 14 { // batches of 1 and 2 succeed, one of 4 fails, 13 are skipped
		t.Errorf("%+v", r)
	}
}

func TestActionStrings(t *testing.T) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "x", UID: "u"}}
	got := []string{}
	for _, a := range []controller.Action{controller.Create(cm), controller.UpdateStatus(cm), controller.Patch(cm, "", types.MergePatchType, []byte(`{}`)), controller.Delete(cm, metav1.DeleteOptions{}),
		controller.Event(cm, "Normal", "Because", "it is %d", 1), controller.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", GenerateName: "p-"}})} {
		got = append(got, a.String())
	}
	want := []string{"create ConfigMap n/x", "update ConfigMap n/x status", "patch ConfigMap n/x {}", "delete ConfigMap n/x", "event ConfigMap n/x Normal Because: it is 1", "create Pod n/p-*"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
