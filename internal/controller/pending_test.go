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

// pendingTest is a loop's pending writes beside a cache that learns of things when the test says so.
type pendingTest struct {
	*testing.T
	*pending
	store    cache.Store
	released []Key
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func newPendingTest(t *testing.T) *pendingTest {
	p := &pendingTest{T: t, store: cache.NewStore(cache.MetaNamespaceKeyFunc)}
	p.pending = newPending(func(k Key) { p.released = append(p.released, k) })
	p.stores[configMaps] = p.store
	return p
}

func configMap(name string, uid types.UID, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid, ResourceVersion: version}}
}

// learn has the cache learn of an object.
func (p *pendingTest) learn(obj *corev1.ConfigMap, gone bool) {
	p.Helper()
	change := p.store.Add
	if gone {
		change = p.store.Delete
	}
	if err := change(obj); err != nil {
		p.Fatal(err)
	}
	p.saw(configMaps, obj, gone)
}

// waits says whether the key of the test must wait.
func (p *pendingTest) waits() bool {
	wait, _ := p.holds(Key{"default", "owner"}, time.Time{})
	return wait
}

func (p *pendingTest) wrote(obj *corev1.ConfigMap, version string) {
	p.pending.wrote(Key{"default", "owner"}, configMaps, KeyOf(obj), obj.UID, version, time.Time{})
}

// A key waits until the cache knows the version that was written, or one after it.
func TestPendingVersion(t *testing.T) {
	p := newPendingTest(t)
	p.wrote(configMap("a", "1", ""), "10")
	if !p.waits() {
		t.Error("nobody knows of a yet")
	}
	p.learn(configMap("a", "1", "9"), false)
	if !p.waits() {
		t.Error("this is a before the write")
	}
	p.learn(configMap("a", "1", "11"), false)
	if p.waits() || len(p.released) != 1 {
		t.Errorf("this is a after the write, and the key was wanted: %v", p.released)
	}
}

// What was deleted may be there again under the same name, made by somebody else, before or after the one who deleted it has the answer.
func TestPendingDeletedAndMadeAgain(t *testing.T) {
	deleted := configMap("a", "1", "9")
	again := configMap("a", "2", "12")

	p := newPendingTest(t)
	p.learn(deleted, false)
	p.wrote(deleted, "")
	if !p.waits() {
		t.Error("the cache still has it")
	}
	p.learn(again, false) // a cache that lists anew has no event for the deletion
	if p.waits() {
		t.Error("it waits for the end of another object")
	}

	p = newPendingTest(t)
	p.learn(deleted, false)
	p.learn(deleted, true)
	p.learn(again, false)
	p.wrote(deleted, "")
	if p.waits() {
		t.Error("it waits for the end of another object, as the answer came late")
	}
}

// What was made and went again before the answer came is not awaited.
func TestPendingGoneAlready(t *testing.T) {
	p := newPendingTest(t)
	p.learn(configMap("other", "3", "20"), false)
	p.wrote(configMap("a", "1", ""), "10")
	if p.waits() {
		t.Error("the cache is past that version, and has no such object")
	}
}
