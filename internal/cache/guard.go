package cache

import (
	"fmt"
	"hash/maphash"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
)

// guard notices who changes a decoded object that is shared: it remembers a checksum when the object is decoded and compares when it
// is replaced. A nil guard does nothing.
type guard struct {
	report func(problem string)
	seed   maphash.Seed
	mu     sync.Mutex
	sums   map[*Item]uint64
}

func newGuard(report func(string)) *guard {
	if report == nil {
		return nil
	}
	return &guard{report: report, seed: maphash.MakeSeed(), sums: map[*Item]uint64{}}
}

func (g *guard) watch(it *Item, obj runtime.Object) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sums[it] = g.sum(obj)
}

func (g *guard) check(it *Item, kind string) {
	if g == nil || it == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	sum, known := g.sums[it]
	obj := it.object.Load()
	if !known || obj == nil {
		return
	}
	delete(g.sums, it)
	if g.sum(*obj) != sum {
		g.report(fmt.Sprintf("the shared object %s %s at revision %d was changed in place: copy it first (DeepCopy)", kind, it.Key, it.Revision))
	}
}

func (g *guard) sum(obj runtime.Object) uint64 {
	if m, ok := obj.(interface{ Marshal() ([]byte, error) }); ok {
		if b, err := m.Marshal(); err == nil {
			return maphash.Bytes(g.seed, b)
		}
	}
	return maphash.String(g.seed, fmt.Sprintf("%#v", obj))
}
