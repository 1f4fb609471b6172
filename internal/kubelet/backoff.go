package kubelet

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// How long a container that keeps ending is not started again: 10 s the second time, then twice as long each time up to 5 minutes. One that
// has run for twice as long as that starts anew.
const (
	firstBackOff = 10 * time.Second
	lastBackOff  = 5 * time.Minute
)

// backOff is how long to wait.
type backOff struct {
	delay   time.Duration
	updated time.Time
}

// until says when a container that ended at a time may be started again; zero is at once.
func (b backOff) until(ended time.Time) time.Time {
	if b.delay == 0 || b.expired(ended) {
		return time.Time{}
	}
	return ended.Add(b.delay)
}

func (b backOff) expired(ended time.Time) bool { return ended.Sub(b.updated) > 2*lastBackOff }

// next is how long to wait the next time.
func (b backOff) next(ended, now time.Time) backOff {
	if b.delay == 0 || b.expired(ended) {
		return backOff{firstBackOff, now}
	}
	return backOff{min(2*b.delay, lastBackOff), now}
}

// backOffs are those of all containers.
type backOffs struct {
	mu sync.Mutex
	of map[types.UID]map[string]backOff
}

// get are those of a pod, by container and its hash.
func (b *backOffs) get(uid types.UID) map[string]backOff {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]backOff, len(b.of[uid]))
	for name, d := range b.of[uid] {
		out[name] = d
	}
	return out
}

func (b *backOffs) set(uid types.UID, key string, d backOff) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of = map[types.UID]map[string]backOff{}
	}
	if b.of[uid] == nil {
		b.of[uid] = map[string]backOff{}
	}
	b.of[uid][key] = d
}

func (b *backOffs) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, uid)
}
