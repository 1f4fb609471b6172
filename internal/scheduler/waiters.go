package scheduler

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

func claimWaiter(namespace, name string) string { return "claim " + namespace + "/" + name }

func nodeWaiter(name string) string { return "node " + name }

func podWaiter(uid types.UID) string { return "pod " + string(uid) }

// waiters wakes pods that wait for objects before they can be bound.
type waiters struct {
	mu    sync.Mutex
	byKey map[string]map[chan struct{}]struct{}
}

// register returns a channel that receives when one of the keys is woken, until stop is called. Several wakes may become one.
func (w *waiters) register(keys []string) (woken <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKey == nil {
		w.byKey = map[string]map[chan struct{}]struct{}{}
	}
	for _, key := range keys {
		if w.byKey[key] == nil {
			w.byKey[key] = map[chan struct{}]struct{}{}
		}
		w.byKey[key][ch] = struct{}{}
	}
	return ch, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, key := range keys {
			if delete(w.byKey[key], ch); len(w.byKey[key]) == 0 {
				delete(w.byKey, key)
			}
		}
	}
}

func (w *waiters) wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.byKey[key] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
