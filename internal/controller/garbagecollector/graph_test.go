package garbagecollector

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/test/seed"
)

// Whatever happens in whatever order, the graph equals one that is built from the same objects, and every object that something is to be done about has been
// queued since.
func TestGraphAnyOrder(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 150 {
		woken := map[types.UID]bool{}
		g := newGraph(func(uid types.UID) { woken[uid] = true })
		g.served = kinds
		there := map[string]object{}
		for step := range 60 {
			name := fmt.Sprint("o", random.IntN(8))
			switch o, known := there[name]; {
			case known && random.IntN(4) == 0:
				g.deleted(o.kind, o.meta)
				delete(there, name)
			case known && random.IntN(20) == 0:
				g.removeKind(o.kind)
				maps.DeleteFunc(there, func(_ string, other object) bool { return other.kind == o.kind })
			case random.IntN(5) == 0:
				for _, by := range g.decide(uidOf(name), true).ask {
					g.verified(uidOf(name), by, answer(random.IntN(3)+1))
				}
			default:
				k := o.kind
				if !known {
					k = kinds[[]kindName{{"v1", "Pod"}, {"v1", "Node"}, {"apps/v1", "ReplicaSet"}}[random.IntN(3)]]
				}
				m := randomMeta(random, k, name, step)
				if known && o.meta.DeletionTimestamp != nil { // a deletion cannot be undone
					m.DeletionTimestamp = o.meta.DeletionTimestamp
				}
				there[name] = object{k, m}
				g.observe(k, there[name].meta)
			}
			check(t, g)
			circles := 0 // of objects that wait for each other, it is enough that one is queued
			for uid := range woken {
				if n := g.nodes[uid]; n != nil && n.blocking > 0 && g.decide(uid, true).finish != "" {
					circles++
				}
			}
			for uid, n := range g.nodes {
				if p := g.decide(uid, true); !p.empty() && !woken[uid] && !(p.finish != "" && n.blocking > 0 && circles > 0) {
					t.Fatalf("step %d: nobody looks at %s, about which is to be done: ask %v, again %v, release %v, delete %s, finish %s", step, uid, p.ask, p.requeue, p.release, p.delete, p.finish)
				}
			}
			if random.IntN(3) == 0 { // all are reconciled; their actions may fail, so the objects stay
				for uid := range woken {
					if g.decide(uid, true).empty() {
						delete(woken, uid)
					}
				}
			}
		}
	}
}

func refTo(random *rand.Rand, name string) metav1.OwnerReference {
	by := []kindName{{"v1", "Pod"}, {"v1", "Node"}, {"apps/v1", "ReplicaSet"}, {"apps/v1beta1", "ReplicaSet"}, {"example.com/v1", "Widget"}}[random.IntN(5)]
	return metav1.OwnerReference{APIVersion: by.apiVersion, Kind: by.kind, Name: name, UID: uidOf(name), BlockOwnerDeletion: new(random.IntN(2) == 0)}
}

func randomMeta(random *rand.Rand, k *kind, name string, version int) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uidOf(name), ResourceVersion: fmt.Sprint(version)}}
	if k.namespaced {
		m.Namespace = "default"
	}
	for range random.IntN(3) {
		m.OwnerReferences = append(m.OwnerReferences, refTo(random, fmt.Sprint("o", random.IntN(8))))
	}
	if random.IntN(3) == 0 {
		m.DeletionTimestamp = &metav1.Time{}
	}
	for _, finalizer := range []string{metav1.FinalizerDeleteDependents, metav1.FinalizerOrphanDependents} {
		if random.IntN(3) == 0 {
			m.Finalizers = append(m.Finalizers, finalizer)
		}
	}
	return m
}

// The memory that an object takes in the graph, besides what is kept of its metadata.
func TestGraphMemory(t *testing.T) {
	const pods, most = 30_000, 200
	g := newGraph(func(types.UID) {})
	g.served = kinds
	rs, pod := kinds[kindName{"apps/v1", "ReplicaSet"}], kinds[kindName{"v1", "Pod"}]
	objects := make([]*metav1.PartialObjectMetadata, 0, pods)
	for i := range pods {
		owner := fmt.Sprint("rs", i/150)
		objects = append(objects, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i), UID: uidOf(fmt.Sprint("p", i)),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: uidOf(owner), BlockOwnerDeletion: new(true)}}}})
	}
	before := heap()
	for i, m := range objects {
		if i%150 == 0 {
			owner := m.OwnerReferences[0]
			g.observe(rs, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: owner.Name, UID: owner.UID}})
		}
		g.observe(pod, m)
	}
	each := (heap() - before) / pods
	t.Logf("%d bytes for each of %d pods", each, pods)
	if each > most {
		t.Errorf("more than %d", most)
	}
	runtime.KeepAlive(g)
	runtime.KeepAlive(objects)
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
