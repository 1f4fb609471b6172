package garbagecollector

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// definers are the resources whose objects decide which resources there are.
var definers = []schema.GroupResource{{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}, {Group: "apiregistration.k8s.io", Resource: "apiservices"}}

// monitor feeds the objects of one resource into the graph. It is the store of a reflector and not an informer, as the graph holds the objects: an
// informer would hold them once more, and run nine goroutines where a reflector runs three. There may be a thousand resources.
type monitor struct {
	collector *collector
	kind      *kind
	ctx       context.Context // has ended when the kind has been removed from the graph: nothing may enter it then
	stop      context.CancelFunc
	synced    chan struct{} // closed when the graph has all objects of the first list
	defines   bool          // objects of the resource decide which resources there are
}

// startMonitor feeds the objects of a resource into the graph.
func (c *collector) startMonitor(ctx context.Context, k *kind) *monitor {
	m := &monitor{collector: c, kind: k, synced: make(chan struct{}), defines: slices.Contains(definers, k.resource.GroupResource())}
	m.ctx, m.stop = context.WithCancel(ctx)
	reflector := cache.NewReflectorWithOptions(c.client.MetadataListerWatcher(k.resource), &metav1.PartialObjectMetadata{}, m,
		cache.ReflectorOptions{Name: loopName, TypeDescription: k.resource.String()})
	c.running.Go(func() { reflector.RunWithContext(m.ctx) })
	return m
}

// change changes the graph, unless the kind has been removed from it.
func (m *monitor) change(do func(*graph)) {
	m.collector.locked(func() {
		if m.ctx.Err() == nil {
			do(m.collector.graph)
		}
	})
}

// Add implements cache.ReflectorStore.
func (m *monitor) Add(obj any) error {
	m.change(func(g *graph) { g.observe(m.kind, trim(obj)) })
	m.announce()
	return nil
}

// Update implements cache.ReflectorStore.
func (m *monitor) Update(obj any) error { return m.Add(obj) }

// Delete implements cache.ReflectorStore.
func (m *monitor) Delete(obj any) error {
	m.change(func(g *graph) { g.deleted(m.kind, trim(obj)) })
	m.announce()
	return nil
}

// Replace implements cache.ReflectorStore: the resource has been listed, for the first time or anew.
func (m *monitor) Replace(objects []any, _ string) error {
	select {
	case <-m.synced:
		m.removeMissing(objects)
		m.announce()
	default: // the graph has no objects of the kind yet
		defer close(m.synced)
	}
	for _, obj := range objects {
		m.change(func(g *graph) { g.observe(m.kind, trim(obj)) })
	}
	return nil
}

// removeMissing removes objects of the kind from the graph that are not listed any more, those too whose names other objects have now.
func (m *monitor) removeMissing(listed []any) {
	uids := make(map[types.UID]bool, len(listed))
	for _, obj := range listed {
		uids[trim(obj).UID] = true
	}
	m.change(func(g *graph) {
		for uid, n := range g.nodes {
			if n.kind == m.kind && !uids[uid] {
				g.deleted(m.kind, n.meta)
			}
		}
	})
}

// Resync implements cache.ReflectorStore.
func (m *monitor) Resync() error { return nil }

// announce has the resources discovered anew if an object that decides about them has changed.
func (m *monitor) announce() {
	if m.defines {
		m.collector.announceDefinition()
	}
}

// trim returns the part of an object's metadata that the graph needs. Its argument is shared and is not changed.
func trim(obj any) *metav1.PartialObjectMetadata {
	m := obj.(*metav1.PartialObjectMetadata)
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, OwnerReferences: m.OwnerReferences, Finalizers: m.Finalizers}}
}
