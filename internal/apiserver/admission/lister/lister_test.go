package lister_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission/lister"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

func TestByNamespaceKeepsUpWithChanges(t *testing.T) {
	store, limits := objectstest.New(), corev1.Resource("limitranges")
	limit := func(namespace, name, note string) *corev1.LimitRange {
		return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"note": note}}}
	}
	store.Put(limits, limit("a", "there", "1"))
	limitRanges := lister.ByNamespace(store, limits, func(l *corev1.LimitRange) string { return l.Name + l.Annotations["note"] })
	expect := func(namespace string, want ...string) {
		t.Helper()
		if got := limitRanges.List(namespace); !slices.Equal(got, want) {
			t.Errorf("in %s: %v, want %v", namespace, got, want)
		}
	}
	expect("a", "there1")
	store.Put(limits, limit("a", "zebra", "1"))
	store.Put(limits, limit("a", "ant", "1"))
	store.Put(limits, limit("b", "other", "1"))
	before := limitRanges.List("a")
	store.Put(limits, limit("a", "there", "2"))
	expect("a", "ant1", "there2", "zebra1")
	if !slices.Equal(before, []string{"ant1", "there1", "zebra1"}) {
		t.Errorf("a list that was handed out changed: %v", before)
	}
	store.Remove(limits, "a", "ant")
	store.Remove(limits, "b", "other")
	expect("a", "there2", "zebra1")
	expect("b")
}

func TestChooseKeepsTheBest(t *testing.T) {
	store, classes := objectstest.New(), storagev1.Resource("storageclasses")
	class := func(name string, age time.Duration, counts bool) *storagev1.StorageClass {
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))}}
		if counts {
			c.Provisioner = "yes"
		}
		return c
	}
	chosen := lister.Choose(store, classes, func(c *storagev1.StorageClass) bool { return c.Provisioner == "yes" }, lister.NewestFirst)
	expect := func(want string) {
		t.Helper()
		got := ""
		if c, ok := chosen.Get(); ok {
			got = c.Name
		}
		if got != want {
			t.Errorf("chose %q, want %q", got, want)
		}
	}
	expect("")
	store.Put(classes, class("b", time.Hour, true))
	expect("b")
	store.Put(classes, class("a", time.Hour, true))
	expect("a")
	store.Put(classes, class("new", time.Minute, true))
	store.Put(classes, class("newest", time.Second, false))
	expect("new")
	store.Put(classes, class("new", time.Minute, false))
	expect("a")
	store.Remove(classes, "", "a")
	store.Remove(classes, "", "b")
	expect("")
}

// lagging is a store that has not delivered any event yet.
type lagging struct{ *objectstest.Store }

func (lagging) Follow(schema.GroupResource, func(before, after catalog.Object)) {}

func TestFirstObjectOfNamespaceTakesEffectAtOnce(t *testing.T) {
	store, limits := lagging{objectstest.New()}, corev1.Resource("limitranges")
	limitRanges := lister.ByNamespace(store, limits, func(l *corev1.LimitRange) string { return l.Name })
	store.Put(limits, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "first"}})
	if got := limitRanges.List("a"); !slices.Equal(got, []string{"first"}) {
		t.Errorf("in a: %v", got)
	}
	if got := limitRanges.List("b"); len(got) > 0 {
		t.Errorf("in b: %v", got)
	}
}
