package controller

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// pendingTest holds a loop's pending writes beside a cache that observes objects when the test says so.
type pendingTest struct {
	*testing.T
	*pending
	store    cache.Store
	requeued []Key
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func newPendingTest(t *testing.T) *pendingTest {
	p := &pendingTest{T: t, store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	p.pending = newPending(func(k Key) { p.requeued = append(p.requeued, k) })
	p.stores[configMaps] = p.store
	return p
}

func configMap(name string, uid types.UID, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid, ResourceVersion: version}}
}

// observe updates the cache with an object, or deletes it, and notifies pending.
func (p *pendingTest) observe(obj *corev1.ConfigMap, deleted bool) {
	p.Helper()
	change := p.store.Add
	if deleted {
		change = p.store.Delete
	}
	if err := change(obj); err != nil {
		p.Fatal(err)
	}
	p.observed(configMaps, obj, deleted)
}

// keyWaits reports whether the test's key must wait.
func (p *pendingTest) keyWaits() bool {
	wait, _ := p.mustWait(Key{"default", "owner"}, time.Time{})
	return wait
}

func (p *pendingTest) wrote(obj *corev1.ConfigMap, version string) {
	p.pending.wrote(Key{"default", "owner"}, configMaps, KeyOf(obj), obj.UID, version, time.Time{})
}

// A key waits until the cache has observed the resourceVersion that was written, or a later one.
func TestPendingVersion(t *testing.T) {
	p := newPendingTest(t)
	p.wrote(configMap("a", "1", ""), "10")
	if !p.keyWaits() {
		t.Error("the cache has not observed a yet")
	}
	p.observe(configMap("a", "1", "9"), false)
	if !p.keyWaits() {
		t.Error("this is a before the write")
	}
	p.observe(configMap("a", "1", "11"), false)
	if p.keyWaits() || len(p.requeued) != 1 {
		t.Errorf("this is a after the write, and the key was to be requeued: %v", p.requeued)
	}
}

// A deleted object may have been created again under the same name by another client, before or after the response to the deletion arrives.
func TestPendingDeletedAndRecreated(t *testing.T) {
	deleted := configMap("a", "1", "9")
	again := configMap("a", "2", "12")

	p := newPendingTest(t)
	p.observe(deleted, false)
	p.wrote(deleted, "")
	if !p.keyWaits() {
		t.Error("the cache still has it")
	}
	p.observe(again, false) // a cache that lists anew has no event for the deletion
	if p.keyWaits() {
		t.Error("it waits for the deletion of another object")
	}

	p = newPendingTest(t)
	p.observe(deleted, false)
	p.observe(deleted, true)
	p.observe(again, false)
	p.wrote(deleted, "")
	if p.keyWaits() {
		t.Error("it waits for the deletion of another object: the response came late")
	}
}

// An object that was created and deleted again before the response arrived is not waited for.
func TestPendingDeletedAlready(t *testing.T) {
	p := newPendingTest(t)
	p.observe(configMap("other", "3", "20"), false)
	p.wrote(configMap("a", "1", ""), "10")
	if p.keyWaits() {
		t.Error("the cache is past that version, and has no such object")
	}
}

// An object that waits for its initializers is waited for as long as it exists: any time, and however new what the cache has observed of others is.
func TestPendingHidden(t *testing.T) {
	p, owner, start := newPendingTest(t), Key{"default", "owner"}, time.Time{}
	p.observe(configMap("other", "3", "20"), false)
	p.hidden(owner, configMaps, Key{"default", "a"}, "1", start)
	if !p.keyWaits() {
		t.Error("the cache has not observed a yet")
	}
	if late := p.lateHidden(owner, start.Add(observeTimeout/2)); len(late) > 0 {
		t.Errorf("it is too early for %v", late)
	}
	after := start.Add(observeTimeout)
	if late := p.lateHidden(owner, after); len(late) != 1 || late[0].uid != "1" || late[0].key.Name != "a" {
		t.Errorf("late are %v", late)
	}
	p.extend(owner, after)
	if wait, _ := p.mustWait(owner, after.Add(observeTimeout/2)); !wait {
		t.Error("a still exists")
	}
	if wait, late := p.mustWait(owner, after.Add(observeTimeout)); wait || !late {
		t.Error("nobody has said that a still exists")
	}
	p.hidden(owner, configMaps, Key{"default", "b"}, "2", start)
	p.observe(configMap("b", "2", "30"), false)
	if p.keyWaits() {
		t.Error("b is initialized")
	}
}
