package garbagecollector

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// object is an object that something is done to.
type object struct {
	kind *kind
	meta *metav1.PartialObjectMetadata
}

// String is the object as people write it.
func (o object) String() string {
	if o.meta.Namespace == "" {
		return o.kind.kind + " " + o.meta.Name
	}
	return o.kind.kind + " " + o.meta.Namespace + "/" + o.meta.Name
}

// plan is what is to be done about a node: one of ask, release, delete or finish.
type plan struct {
	about types.UID
	// ask are names of the node that the server is asked about. again has it asked again later, as nobody would tell.
	ask   []name
	again bool
	// object is the node, if it was observed.
	object object
	// release are owners that the object is to forget.
	release []types.UID
	// delete is how the object is to be deleted.
	delete metav1.DeletionPropagation
	// finish is a finalizer that has done its work, once the orphans have forgotten the object.
	finish  string
	orphans []object
	// strangers are owners in another namespace, of which the object is told.
	strangers []metav1.OwnerReference
	// because are the objects that are the reason, with their versions.
	because []*metav1.PartialObjectMetadata
}

// decide says what to do about a node, and takes note of owners that are let go without their dependents. settled says that all there is has been observed:
// dependents that have not been seen yet would be overlooked otherwise.
func (g *graph) decide(uid types.UID, settled bool) plan {
	p := plan{about: uid}
	n := g.nodes[uid]
	if n == nil {
		return p
	}
	g.doubts(n, &p)
	if n.meta == nil {
		return p
	}
	p.object = object{n.kind, n.meta}
	switch {
	case isOrphaning(n.meta):
		p.finish = metav1.FinalizerOrphanDependents
		for dependent := range n.dependents {
			p.orphans = append(p.orphans, object{dependent.kind, dependent.meta})
		}
	case isWaiting(n.meta):
		if n.blocking == 0 || g.inCycle(n) {
			p.finish = metav1.FinalizerDeleteDependents
		}
	case n.meta.DeletionTimestamp == nil:
		g.outlive(n, &p)
	}
	if p.finish != "" {
		p.because = append(p.because, n.meta)
		switch {
		case !settled:
			p.finish, p.orphans, p.again = "", nil, true
		case p.finish == metav1.FinalizerOrphanDependents:
			g.spare(n.meta)
		}
	}
	return p
}

// doubts finds the names of a node that the server is to be asked about. Nobody would tell that an object is gone that has never been
// observed, so about one that is there it is asked again.
func (g *graph) doubts(n *node, p *plan) {
	for _, c := range n.claims {
		if c.answer == absent || g.isInvalid(c.name) || n.meta != nil && c.answer != unknown {
			continue
		}
		p.ask = append(p.ask, c.name)
		p.again = n.meta == nil
	}
}

// outlive decides about an object that is not being deleted: whether it may stay without some of its owners.
func (g *graph) outlive(n *node, p *plan) {
	var there, sparing, gone, ending []types.UID
	for _, ref := range n.meta.OwnerReferences {
		owner := g.nodes[ref.UID]
		switch g.answer(n, ref) {
		case unknown, invalid:
			return // it is looked at again when more is known
		case solid:
			there = append(there, ref.UID)
			continue
		case absent:
			if g.isSpared(n.meta, ref.UID) {
				sparing = append(sparing, ref.UID)
				break
			}
			gone = append(gone, ref.UID)
			if owner != nil && owner.meta != nil && owner.kind.namespaced && owner.meta.Namespace != n.meta.Namespace {
				p.strangers = append(p.strangers, ref)
			}
		case waiting:
			ending = append(ending, ref.UID)
		}
		if because := causeOf(owner); because != nil {
			p.because = append(p.because, because)
		}
	}
	switch {
	case len(sparing)+len(gone)+len(ending) == 0:
	case len(there) > 0 || len(gone)+len(ending) == 0:
		p.release = slices.Concat(sparing, gone, ending)
	case len(ending) > 0 && len(n.dependents) > 0:
		p.delete = metav1.DeletePropagationForeground // its owners wait for its dependents too
	case slices.Contains(n.meta.Finalizers, metav1.FinalizerOrphanDependents):
		p.delete = metav1.DeletePropagationOrphan
	case slices.Contains(n.meta.Finalizers, metav1.FinalizerDeleteDependents):
		p.delete = metav1.DeletePropagationForeground
	default:
		p.delete = metav1.DeletePropagationBackground
	}
}

// causeOf is an owner in the version that is the reason to do something about its dependents: that in which it waits, or was deleted.
func causeOf(owner *node) *metav1.PartialObjectMetadata {
	switch {
	case owner == nil:
		return nil
	case owner.meta != nil:
		return owner.meta
	case owner.version != "":
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: owner.uid, ResourceVersion: owner.version}}
	}
	return nil
}

// maxCycle bounds the search for cycles.
const maxCycle = 10_000

// inCycle says whether an object that waits for its dependents waits for nothing but itself: all that keep it wait too, in the end for it.
// Somebody has to go first.
func (g *graph) inCycle(n *node) bool {
	keep := map[*node]bool{} // all that the object waits for
	for search := []*node{n}; len(search) > 0; {
		at := search[len(search)-1]
		search = search[:len(search)-1]
		for dependent := range at.dependents {
			if keep[dependent] || !dependent.blocksNode(at) {
				continue
			}
			if !isWaiting(dependent.meta) || len(keep) == maxCycle {
				return false
			}
			keep[dependent] = true
			search = append(search, dependent)
		}
	}
	// What does not wait for the object goes before it.
	waits := map[*node]bool{n: true}
	for search := []*node{n}; len(search) > 0; {
		at := search[len(search)-1]
		search = search[:len(search)-1]
		for _, ref := range at.meta.OwnerReferences {
			if owner := g.nodes[ref.UID]; blocks(at, ref) && keep[owner] && !waits[owner] {
				waits[owner] = true
				search = append(search, owner)
			}
		}
	}
	return keep[n] && len(waits) == len(keep)
}

func (n *node) blocksNode(owner *node) bool {
	return slices.ContainsFunc(n.meta.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == owner.uid && blocks(n, ref) })
}

// String says what the plan is about.
func (p plan) String() string {
	if p.object.meta == nil {
		return string(p.about)
	}
	return p.object.String()
}

// empty says whether there is nothing to do.
func (p plan) empty() bool {
	return len(p.ask) == 0 && !p.again && len(p.release) == 0 && p.delete == "" && p.finish == ""
}

// unownedMessage is what an object is told of an owner in another namespace.
func unownedMessage(namespace string, ref metav1.OwnerReference) string {
	return fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q", ref.APIVersion, ref.Kind, namespace, ref.Name, ref.UID, namespace)
}
