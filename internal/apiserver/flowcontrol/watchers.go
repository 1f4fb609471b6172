package flowcontrol

import (
	"sync"
	"sync/atomic"
)

// Watchers counts the watches of one resource, by what they watch. The zero value counts none.
type Watchers struct {
	all    atomic.Int64
	mu     sync.Mutex
	counts map[watched]int
}

// watched is what a watch is of: all objects of the resource, those of a namespace, or one of a name.
type watched struct{ namespace, name string }

// Add counts a watch until the returned function is called.
func (w *Watchers) Add(namespace, name string) (remove func()) {
	w.change(watched{namespace, name}, 1)
	return func() { w.change(watched{namespace, name}, -1) }
}

func (w *Watchers) change(of watched, by int) {
	w.all.Add(int64(by))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counts == nil {
		w.counts = map[watched]int{}
	}
	if w.counts[of] += by; w.counts[of] == 0 {
		delete(w.counts, of)
	}
}

// Of returns how many watches are told of a change of an object. It returns 0 without looking closer if the resource has fewer than least.
func (w *Watchers) Of(namespace, name string, least int) int {
	if w.all.Load() < int64(least) {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.counts[watched{}]
	if namespace != "" {
		n += w.counts[watched{namespace: namespace}]
	}
	if name != "" {
		n += w.counts[watched{namespace, name}]
	}
	return n
}
