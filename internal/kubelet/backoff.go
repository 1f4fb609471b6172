package kubelet

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// How long a container that keeps exiting is not started again: 10 s the second time, doubling each time up to 5 minutes. The back-off of one that has run
// for twice maxBackOff starts over.
const (
	minBackOff = 10 * time.Second
	maxBackOff = 5 * time.Minute
)

// backOff is the crash-loop back-off of a container.
type backOff struct {
	delay   time.Duration
	updated time.Time // when delay was set
}

// until returns when a container that exited at a time may be started again; zero is at once.
func (b backOff) until(exited time.Time) time.Time {
	if b.delay == 0 || b.expired(exited) {
		return time.Time{}
	}
	return exited.Add(b.delay)
}

func (b backOff) expired(exited time.Time) bool { return exited.Sub(b.updated) > 2*maxBackOff }

// next returns the back-off after another exit.
func (b backOff) next(exited, now time.Time) backOff {
	if b.delay == 0 || b.expired(exited) {
		return backOff{minBackOff, now}
	}
	return backOff{min(2*b.delay, maxBackOff), now}
}

// backOffs are the back-offs of all containers.
type backOffs struct {
	mu    sync.Mutex
	byPod map[types.UID]map[string]backOff
}

// get returns a pod's back-offs, by backOffKey.
func (b *backOffs) get(uid types.UID) map[string]backOff {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make(map[string]backOff, len(b.byPod[uid]))
	for name, d := range b.byPod[uid] {
		out[name] = d
	}
	return out
}

func (b *backOffs) set(uid types.UID, key string, d backOff) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byPod == nil {
		b.byPod = map[types.UID]map[string]backOff{}
	}
	if b.byPod[uid] == nil {
		b.byPod[uid] = map[string]backOff{}
	}
	b.byPod[uid][key] = d
}

func (b *backOffs) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.byPod, uid)
}
