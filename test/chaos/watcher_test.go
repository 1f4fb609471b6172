//go:build linux

package chaos

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// watcher watches all changes. Whenever its watch ends it resumes after the last revision.
type watcher struct {
	t    *testing.T
	maps typedcorev1.ConfigMapInterface

	mu      sync.Mutex
	last    int64
	deeds   map[string][]writeRecord
	watches int // that were opened
}

func newWatcher(t *testing.T, maps typedcorev1.ConfigMapInterface) *watcher {
	t.Helper()
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 0 {
		t.Fatalf("%d objects before the first write", len(list.Items))
	}
	return &watcher{t: t, maps: maps, last: parse(t, list.ResourceVersion), deeds: map[string][]writeRecord{}}
}

func parse(t *testing.T, version string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Errorf("resourceVersion %q: %v", version, err)
	}
	return n
}

func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := w.maps.Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.FormatInt(w.seen(), 10), AllowWatchBookmarks: true})
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
			continue
		}
		w.mu.Lock()
		w.watches++
		w.mu.Unlock()
		for e := range stream.ResultChan() {
			if !w.take(e) {
				break
			}
		}
		stream.Stop()
	}
}

func (w *watcher) seen() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

func (w *watcher) opened() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watches
}

// take records an event. It returns false for one that ends the watch.
func (w *watcher) take(e watch.Event) bool {
	cm, ok := e.Object.(*corev1.ConfigMap)
	if !ok {
		if status, is := e.Object.(*metav1.Status); !is || status.Reason == metav1.StatusReasonExpired || status.Reason == metav1.StatusReasonGone {
			w.t.Errorf("the watch was told %v", e.Object)
		}
		return false // a connection that broke in the middle of an event comes as an error
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	version := parse(w.t, cm.ResourceVersion)
	if e.Type == watch.Bookmark {
		w.last = max(w.last, version)
		return true
	}
	if version <= w.last {
		w.t.Errorf("%s %s at %d, after %d", e.Type, cm.Name, version, w.last)
	}
	w.last = version
	d := writeRecord{string(e.Type), cm.Data["v"], cm.ResourceVersion}
	if e.Type == watch.Deleted {
		d.version = ""
	}
	w.deeds[cm.Name] = append(w.deeds[cm.Name], d)
	return true
}
