package controller

import (
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// observeTimeout is how long a key waits until the caches have observed what was written for it. It is a safety net: a watch that lags so far is
// broken.
const observeTimeout = 30 * time.Second

// pending holds the writes of a loop that its caches have not observed yet, as upstream's expectations do. A key with pending writes is not
// reconciled: the loop would decide the same again, and create twice what is needed once.
type pending struct {
	mu      sync.Mutex
	stores  map[schema.GroupVersionResource]cache.Store // caches of the watched resources
	objects map[object][]*awaited
	keys    map[Key]*heldKey
	latest  map[schema.GroupVersionResource]int64 // the newest resourceVersion that each cache has observed of any object
	requeue func(Key)                             // queues a key that had to wait
}

type object struct {
	resource schema.GroupVersionResource
	key      Key
}

// awaited is a write that a cache must observe: a version of an object, or its deletion.
type awaited struct {
	by      Key
	uid     types.UID
	version int64 // 0: deleted
	hidden  bool  // the object waits for its initializers, which may take any time
}

// observedIn reports whether a cache that holds this object has observed the write. An object of the same name with another uid was created
// after the deletion that is awaited.
func (w *awaited) observedIn(known metav1.Object) bool {
	if w.version == 0 {
		return known.GetUID() != w.uid
	}
	return versionOf(known.GetResourceVersion()) >= w.version
}

// heldKey is a key with pending writes.
type heldKey struct {
	count    int
	since    time.Time
	requeued bool //  the key was queued meanwhile, and is to be requeued when it need not wait any more
}

func newPending(requeue func(Key)) *pending {
	return &pending{stores: map[schema.GroupVersionResource]cache.Store{}, objects: map[object][]*awaited{}, keys: map[Key]*heldKey{},
		latest: map[schema.GroupVersionResource]int64{}, requeue: requeue}
}

func versionOf(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// wrote notes a write that was made for the key by. An empty version means that the object was deleted.
func (p *pending) wrote(by Key, resource schema.GroupVersionResource, key Key, uid types.UID, version string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	store := p.stores[resource]
	if store == nil {
		return // the loop does not watch it, so it does not decide on it
	}
	what := object{resource, key}
	wait := &awaited{by: by, uid: uid, version: versionOf(version)}
	known, exists, err := store.GetByKey(key.String())
	if err != nil {
		return
	}
	// The caches may have observed the write before the response came.
	if exists && wait.observedIn(known.(metav1.Object)) || !exists && (wait.version == 0 || wait.version <= p.latest[resource]) {
		return
	}
	p.add(what, wait, now)
}

// hidden notes that an object was created for the key by, which waits for its initializers. Until the caches observe it, or it does not exist any more, the
// loop would create another in its place.
func (p *pending) hidden(by Key, resource schema.GroupVersionResource, key Key, uid types.UID, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	store := p.stores[resource]
	if store == nil {
		return
	}
	if _, exists, err := store.GetByKey(key.String()); exists || err != nil {
		return
	}
	p.add(object{resource, key}, &awaited{by: by, uid: uid, version: 1, hidden: true}, now)
}

// awaitedObject is an object that waits for its initializers.
type awaitedObject struct {
	object
	uid types.UID
}

// lateHidden returns the objects created for a key that were not observed within observeTimeout because they wait for their initializers.
func (p *pending) lateHidden(key Key, now time.Time) (late []awaitedObject) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.keys[key]; h == nil || now.Sub(h.since) < observeTimeout {
		return nil
	}
	for what, waits := range p.objects {
		for _, w := range waits {
			if w.by == key && w.hidden {
				late = append(late, awaitedObject{what, w.uid})
			}
		}
	}
	return late
}

// extend lets a key wait as long again.
func (p *pending) extend(key Key, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := p.keys[key]; h != nil {
		h.since = now
	}
}

// add adds a write that must be observed. The caller holds the lock.
func (p *pending) add(what object, wait *awaited, now time.Time) {
	by := wait.by
	p.objects[what] = append(p.objects[what], wait)
	h := p.keys[by]
	if h == nil {
		h = &heldKey{}
		p.keys[by] = h
	}
	h.count++
	h.since = now
}

// observed notes an event of an informer: obj is the new state of an object, or its last if it was deleted.
func (p *pending) observed(resource schema.GroupVersionResource, obj metav1.Object, deleted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	version := versionOf(obj.GetResourceVersion())
	p.latest[resource] = max(p.latest[resource], version)
	what := object{resource, KeyOf(obj)}
	waits := p.objects[what]
	if len(waits) == 0 {
		return
	}
	left := waits[:0]
	for _, w := range waits {
		if deleted || w.observedIn(obj) {
			p.done(w.by)
		} else {
			left = append(left, w)
		}
	}
	if len(left) == 0 {
		delete(p.objects, what)
	} else {
		p.objects[what] = left
	}
}

func (p *pending) done(by Key) {
	h := p.keys[by]
	if h == nil {
		return
	}
	if h.count--; h.count > 0 {
		return
	}
	delete(p.keys, by)
	if h.requeued {
		p.requeue(by)
	}
}

// mustWait reports whether a key must wait for its writes to be observed, and if so requeues it once they are. late reports that they were not
// observed within observeTimeout.
func (p *pending) mustWait(key Key, now time.Time) (wait, late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.keys[key]
	if h == nil {
		return false, false
	}
	if now.Sub(h.since) < observeTimeout {
		h.requeued = true
		return true, false
	}
	delete(p.keys, key)
	for what, waits := range p.objects {
		left := waits[:0]
		for _, w := range waits {
			if w.by != key {
				left = append(left, w)
			}
		}
		if len(left) == 0 {
			delete(p.objects, what)
		} else {
			p.objects[what] = left
		}
	}
	return false, true
}
