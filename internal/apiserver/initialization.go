package apiserver

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/codec"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

const (
	// initializerLate is how long an initializer may take before an Event says that an object waits for it: as long as its creation waits.
	initializerLate = 30 * time.Second
	// initializerLateAgain is how long after an Event another one says so.
	initializerLateAgain = 30 * time.Minute
	// initializerCheck is how often the objects that wait are looked at.
	initializerCheck = 5 * time.Second
	// maxLateEvents bounds the Events of one look.
	maxLateEvents = 50
)

// lateInitializers tells of objects whose initializers do not act: by Events, since nobody sees the objects. It has a goroutine only while some wait.
type lateInitializers struct {
	report func(ctx context.Context, waiting *waiting, now time.Time)

	mu      sync.Mutex
	objects map[string]*waiting // by resource and key
	running bool
	closed  bool
	stop    context.Context
	done    sync.WaitGroup
}

// waiting is an object that waits for an initializer.
type waiting struct {
	resource string // of its cache
	item     *cache.Item
	pending  []string
	since    time.Time // when it began to wait for the first of them, or this server to run
	next     time.Time // when an Event is due
	told     int       // Events so far
}

// observe notes a change of an object that is not initialized, before it or after it.
func (l *lateInitializers) observe(resource string, change *cache.Change) {
	after := change.Item
	if change.Type == cache.Deleted || !after.Uninitialized {
		after = nil
	}
	l.set(resource, change.Item.Key, after)
}

// set notes that an object waits; that it does not if it is nil.
func (l *lateInitializers) set(resource, key string, it *cache.Item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := resource + " " + key
	if it == nil {
		delete(l.objects, id)
		return
	}
	pending := codec.InitializersOf(it).Names()
	if len(pending) == 0 {
		delete(l.objects, id) // it was refused, and is about to be removed
		return
	}
	now := time.Now()
	known := l.objects[id]
	if known == nil || known.item.UID != it.UID || known.pending[0] != pending[0] {
		known = &waiting{resource: resource, since: now, next: now.Add(initializerLate)}
	}
	known.item, known.pending = it, pending
	if l.objects == nil {
		l.objects = map[string]*waiting{}
	}
	l.objects[id] = known
	if !l.running && !l.closed {
		l.running = true
		l.done.Go(l.run)
	}
}

// run looks at the objects that wait until there are none.
func (l *lateInitializers) run() {
	tick := time.NewTicker(initializerCheck)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.stop.Done():
			return
		}
		late, more := l.due(time.Now())
		for _, w := range late {
			l.report(l.stop, &w, time.Now())
		}
		if !more {
			return
		}
	}
}

// due returns the objects of which an Event is due, and whether any object waits.
func (l *lateInitializers) due(now time.Time) (late []waiting, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.objects {
		if len(late) < maxLateEvents && !now.Before(w.next) {
			w.told++
			w.next = now.Add(initializerLateAgain)
			late = append(late, *w)
		}
	}
	l.running = len(l.objects) > 0
	return late, l.running
}

// close waits until nothing is reported any more. Its context must have ended.
func (l *lateInitializers) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.done.Wait()
}

// resumeInitialization notes the objects that waited before the server was started.
func (s *Server) resumeInitialization() {
	for _, end := range s.api.Served().Endpoints {
		if end.Registry == nil || !end.Plain() {
			continue
		}
		for _, it := range end.Registry.Cache.Uninitialized() {
			s.late.set(end.Registry.Cache.Kind.Name, it.Key, it)
		}
	}
}

// tellLate records an Event about an object that waits for an initializer.
func (s *Server) tellLate(ctx context.Context, w *waiting, now time.Time) {
	info := s.infoOf(w.resource)
	if info == nil {
		return
	}
	namespace := w.item.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	hash := fnv.New64a()
	fmt.Fprint(hash, w.item.UID, w.pending[0], w.told)
	message := fmt.Sprintf("initializer %s has not acted for %s: nobody sees the object before it does", w.pending[0], now.Sub(w.since).Round(time.Second))
	if len(w.pending) > 1 {
		message += ", and then " + strings.Join(w.pending[1:], ", ")
	}
	at := metav1.NewTime(now)
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%.200s.%016x", w.item.Name, hash.Sum64())},
		InvolvedObject: corev1.ObjectReference{APIVersion: info.GVK.GroupVersion().String(), Kind: info.GVK.Kind, Namespace: w.item.Namespace, Name: w.item.Name, UID: types.UID(w.item.UID)},
		Reason:         "WaitingForInitializer", Message: message, Type: corev1.EventTypeWarning, Count: 1, FirstTimestamp: at, LastTimestamp: at,
		Source: corev1.EventSource{Component: "kube-apiserver"}, ReportingController: "kube-apiserver"}
	if err := s.createObject(ctx, event); err != nil && !apierrors.IsAlreadyExists(err) && ctx.Err() == nil {
		s.opts.Log.Warn("failed to record that an initializer does not act", "resource", w.resource, "object", w.item.Key, "initializer", w.pending[0], "err", err)
	}
}

// infoOf returns the declaration of the resource that stores the objects of a cache; nil if it is not served.
func (s *Server) infoOf(resource string) *catalog.Info {
	for _, info := range s.api.Served().Infos {
		if info.Stored == info && !info.Virtual && info.GVR.GroupResource().String() == resource {
			return info
		}
	}
	return nil
}
