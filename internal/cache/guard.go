package cache

import (
	"fmt"
	"hash/maphash"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
)

// guard detects changes in place of a decoded object that is shared. It stores a checksum when the object is decoded, and compares it when the
// object is replaced and in checkAll. A reader may still hold an object after it was replaced, so the latest replaced
// objects are checked too. A nil guard does nothing.
type guard struct {
	report func(problem string)
	seed   maphash.Seed

	mu      sync.Mutex
	watched map[*Item]*guarded
	retired []*Item // items that were replaced and are still checked, oldest first
}

type guarded struct {
	kind string
	obj  runtime.Object
	sum  uint64
}

// maxRetired bounds how many replaced objects are still checked.
const maxRetired = 4096

func newGuard(report func(string)) *guard {
	if report == nil {
		return nil
	}
	return &guard{report: report, seed: maphash.MakeSeed(), watched: map[*Item]*guarded{}}
}

// watch begins to guard an object that has just been decoded.
func (g *guard) watch(c *Cache, it *Item, obj runtime.Object) {
	if g == nil {
		return
	}
	g.mu.Lock()
	g.watched[it] = &guarded{kind: c.Kind.Name, obj: obj, sum: g.sum(obj)}
	g.mu.Unlock()
	if c.Get(it.Key) != it { // for example the last state of a deleted object
		g.retire(it)
	}
}

// retire checks an object that was replaced, and keeps checking it until maxRetired others have been replaced.
func (g *guard) retire(it *Item) {
	if g == nil || it == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.watched[it]
	if w == nil {
		return
	}
	g.check(it, w)
	g.retired = append(g.retired, it)
	if len(g.retired) > maxRetired {
		oldest := g.retired[0]
		g.retired = g.retired[1:]
		if w := g.watched[oldest]; w != nil {
			g.check(oldest, w)
			delete(g.watched, oldest)
		}
	}
}

// checkAll checks every guarded object.
func (g *guard) checkAll() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for it, w := range g.watched {
		g.check(it, w)
	}
}

func (g *guard) check(it *Item, w *guarded) {
	sum := g.sum(w.obj)
	if sum == w.sum {
		return
	}
	w.sum = sum // one report for each change
	g.report(fmt.Sprintf("the shared object %s %s at revision %d was changed in place: copy it first (DeepCopy)", w.kind, it.Key, it.Revision))
}

// sum returns the checksum of an object's protobuf encoding and kind.
func (g *guard) sum(obj runtime.Object) uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	_, _ = h.WriteString(obj.GetObjectKind().GroupVersionKind().String()) // not part of the message
	if m, ok := obj.(interface{ Marshal() ([]byte, error) }); ok {
		if b, err := m.Marshal(); err == nil {
			_, _ = h.Write(b)
			return h.Sum64()
		}
	}
	_, _ = fmt.Fprintf(&h, "%#v", obj)
	return h.Sum64()
}
