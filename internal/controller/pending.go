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

// patience is how long a loop waits until its caches know of what it wrote. It is a safety net: a watch that lags so far is broken.
const patience = 30 * time.Second

// pending is what a loop has written and its caches do not know yet. A key with something pending is not looked at: the loop would decide the
// same again, and create twice what is needed once.
type pending struct {
	mu      sync.Mutex
	stores  map[schema.GroupVersionResource]cache.Store // of the resources that are watched
	objects map[object][]*awaited
	keys    map[Key]*held
	latest  map[schema.GroupVersionResource]int64 // the newest version that each cache has seen of any object
	release func(Key)                             // has a key looked at that was held back
}

type object struct {
	resource schema.GroupVersionResource
	key      Key
}

// awaited is a version of an object that a cache must reach, or that it must be gone.
type awaited struct {
	by      Key
	uid     types.UID
	version int64 // 0: gone
}

// reached says whether a cache that holds this object knows what is awaited. An object of the same name with another uid came after the one
// that is awaited to go.
func (w *awaited) reached(known metav1.Object) bool {
	if w.version == 0 {
		return known.GetUID() != w.uid
	}
	return versionOf(known.GetResourceVersion()) >= w.version
}

// held is a key with something pending.
type held struct {
	count  int
	since  time.Time
	wanted bool // somebody wanted it looked at meanwhile
}

func newPending(release func(Key)) *pending {
	return &pending{stores: map[schema.GroupVersionResource]cache.Store{}, objects: map[object][]*awaited{}, keys: map[Key]*held{},
		latest: map[schema.GroupVersionResource]int64{}, release: release}
}

func versionOf(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// wrote notes a write that was made for a key. An empty version means that the object is gone.
func (p *pending) wrote(by Key, resource schema.GroupVersionResource, key Key, uid types.UID, version string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	store := p.stores[resource]
	if store == nil {
		return // nobody here decides on it
	}
	what := object{resource, key}
	wait := &awaited{by, uid, versionOf(version)}
	known, exists, err := store.GetByKey(key.String())
	if err != nil {
		return
	}
	// The caches may have been faster than the answer.
	if exists && wait.reached(known.(metav1.Object)) || !exists && (wait.version == 0 || wait.version <= p.latest[resource]) {
		return
	}
	p.objects[what] = append(p.objects[what], wait)
	h := p.keys[by]
	if h == nil {
		h = &held{}
		p.keys[by] = h
	}
	h.count++
	h.since = now
}

// saw notes what a cache has just learned of an object.
func (p *pending) saw(resource schema.GroupVersionResource, obj metav1.Object, gone bool) {
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
		if gone || w.reached(obj) {
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
	if h.wanted {
		p.release(by)
	}
}

// holds says whether a key must wait, and sees to it that it is looked at when it need not any more. late reports that it waited in vain.
func (p *pending) holds(key Key, now time.Time) (wait, late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.keys[key]
	if h == nil {
		return false, false
	}
	if now.Sub(h.since) < patience {
		h.wanted = true
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
