package registry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog/core"
	"skiff/internal/store/memory"
)

// Keys that expire together share a revision in etcd. Who watches is told of each, with its last state; who begins to watch then is told of none.
func TestUncachedExpiry(t *testing.T) {
	r := &rig{t: t, store: &faulty{Store: openEtcd(t)}}
	info := core.Event.Info()
	const root, objects = "/registry/", 300
	r.feed = cache.NewFeed(r.store, []cache.Kind{registry.Kind(info, registry.Options{Root: root})}, cache.Options{Log: slog.New(slog.DiscardHandler)})
	r.Registry = registry.New(info, registry.Options{Store: r.store, Feed: r.feed, Root: root, TTL: time.Second})
	t.Cleanup(func() {
		r.feed.Close()
		r.store.Close()
	})
	<-r.feed.Synced()
	start := r.revision()
	for i := range objects {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: fmt.Sprintf("e%03d", i), Labels: map[string]string{"half": fmt.Sprint(i % 2)}},
			InvolvedObject: corev1.ObjectReference{Namespace: "x"}, Type: "Normal", Count: int32(i)}
		if _, err := r.Create(t.Context(), e, write()); err != nil {
			t.Fatal(err)
		}
	}
	selector, err := r.NewSelector(info, "x", "half=1", "")
	if err != nil {
		t.Fatal(err)
	}
	w, err := r.Watch(t.Context(), selector, start)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	added, deleted, late := 0, map[string]bool{}, 0
	for len(deleted) < objects/2 {
		changes, err := w.Next(ctx, nil)
		if err != nil {
			t.Fatalf("%v after %d additions and %d deletions", err, added, len(deleted))
		}
		for _, c := range changes {
			switch kind, it := selector.Event(c); kind {
			case cache.Added:
				added++
			case cache.Deleted:
				obj, err := r.Decode(it)
				if err != nil {
					t.Fatal(err)
				}
				if e := obj.(*corev1.Event); fmt.Sprintf("e%03d", e.Count) != it.Name || e.Labels["half"] != "1" || e.ResourceVersion != fmt.Sprint(it.Revision) || deleted[it.Name] {
					t.Fatalf("deleted: %v", e)
				}
				deleted[it.Name] = true
			case cache.Modified:
				t.Fatalf("modified: %s", it.Key)
			}
		}
		if page, from, err := r.WatchFromNow(ctx, registry.Selector{}, true); err != nil {
			t.Fatal(err)
		} else {
			present := map[string]bool{}
			for _, it := range page.Items {
				present[it.Key] = true
			}
			soon, stop := context.WithTimeout(ctx, time.Millisecond)
			changes, err := from.Next(soon, nil)
			stop()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			for _, c := range changes {
				if late++; c.Type == cache.Deleted && !present[c.Item.Key] {
					t.Fatalf("told of the deletion of %s at %d, which was not there at %d", c.Item.Key, c.Item.Revision, page.Revision)
				}
			}
			from.Close()
		}
	}
	if added != objects/2 {
		t.Errorf("%d were added", added)
	}
	if n := r.Cache.Len(); n != 0 {
		t.Errorf("%d are counted after all have expired", n)
	}
}

// A change whose version before has been compacted cannot be told: the watch expires, as one from before the compaction does.
func TestUncachedCompacted(t *testing.T) {
	r := openEvents(t, memory.New(memory.Options{}), true)
	create := func(name string) {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}, InvolvedObject: corev1.ObjectReference{Namespace: "x"}, Type: "Normal"}
		if _, err := r.Create(t.Context(), e, write()); err != nil {
			t.Fatal(err)
		}
	}
	create("a")
	start := r.revision()
	w, err := r.Watch(t.Context(), registry.Selector{}, start)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, _, err := r.Delete(t.Context(), "x", "a", &metav1.DeleteOptions{}, write()); err != nil {
		t.Fatal(err)
	}
	create("b")
	r.fresh()
	if err := r.store.Compact(t.Context(), r.revision()); err != nil {
		t.Fatal(err)
	}
	if changes, err := w.Next(t.Context(), nil); !apierrors.IsResourceExpired(err) {
		t.Fatalf("%v, %v", changes, err)
	}
}
