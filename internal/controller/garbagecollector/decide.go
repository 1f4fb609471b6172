package garbagecollector

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// object is an observed object that a plan writes.
type object struct {
	kind *kind
	meta *metav1.PartialObjectMetadata
}

// String returns the object for messages.
func (o object) String() string {
	if o.meta.Namespace == "" {
		return o.kind.kind + " " + o.meta.Name
	}
	return o.kind.kind + " " + o.meta.Namespace + "/" + o.meta.Name
}

// plan is what to do about a node: one of ask, release, delete or finish.
type plan struct {
	about types.UID
	// ask holds the names of the node to ask the API server about.
	ask []name
	// requeue asks again later, as no event would tell.
	requeue bool
	// object is the node, if it has been observed.
	object object
	// release holds the owners to remove from the object.
	release []types.UID
	// delete is the propagation policy to delete the object with, if any.
	delete metav1.DeletionPropagation
	// finish is a finalizer to remove from the object, once the orphans have lost their reference to it.
	finish string
	// orphans holds the dependents that lose their reference to the object before finish.
	orphans []object
	// foreignOwners holds owners in another namespace, which a warning Event names.
	foreignOwners []metav1.OwnerReference
	// because holds the objects that caused the plan, in the versions that did.
	because []*metav1.PartialObjectMetadata
}

// decide returns what to do about a node, and notes owners that orphan their dependents. allSynced reports that all objects have been observed:
// otherwise dependents that have not been would be overlooked.
func (g *graph) decide(uid types.UID, allSynced bool) plan {
	p := plan{about: uid}
	n := g.nodes[uid]
	if n == nil {
		return p
	}
	g.findUnverified(n, &p)
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
		g.decideByOwners(n, &p)
	}
	if p.finish != "" {
		p.because = append(p.because, n.meta)
		switch {
		case !allSynced:
			p.finish, p.orphans, p.requeue = "", nil, true
		case p.finish == metav1.FinalizerOrphanDependents:
			g.noteOrphaning(n.meta)
		}
	}
	return p
}

// findUnverified finds the names of a node that the API server has to be asked about. No event tells of the deletion of an object that was never
// observed, so the question is asked again while it exists.
func (g *graph) findUnverified(n *node, p *plan) {
	for _, c := range n.claims {
		if c.answer == absent || g.isInvalid(c.name) || n.meta != nil && c.answer != unknown {
			continue
		}
		p.ask = append(p.ask, c.name)
		p.requeue = n.meta == nil
	}
}

// decideByOwners decides whether an object that is not being deleted may stay, by the state of its owners.
func (g *graph) decideByOwners(n *node, p *plan) {
	var existing, orphaning, absentOwners, waitingOwners []types.UID
	for _, ref := range n.meta.OwnerReferences {
		owner := g.nodes[ref.UID]
		switch g.answer(n, ref) {
		case unknown, invalid:
			return // it is requeued when more is known
		case solid:
			existing = append(existing, ref.UID)
			continue
		case absent:
			if g.isOrphanOf(n.meta, ref.UID) {
				orphaning = append(orphaning, ref.UID)
				break
			}
			absentOwners = append(absentOwners, ref.UID)
			if owner != nil && owner.meta != nil && owner.kind.namespaced && owner.meta.Namespace != n.meta.Namespace {
				p.foreignOwners = append(p.foreignOwners, ref)
			}
		case waiting:
			waitingOwners = append(waitingOwners, ref.UID)
		}
		if because := causeOf(owner); because != nil {
			p.because = append(p.because, because)
		}
	}
	switch {
	case len(orphaning)+len(absentOwners)+len(waitingOwners) == 0:
	case len(existing) > 0 || len(absentOwners)+len(waitingOwners) == 0:
		p.release = slices.Concat(orphaning, absentOwners, waitingOwners)
	case len(waitingOwners) > 0 && len(n.dependents) > 0:
		p.delete = metav1.DeletePropagationForeground // its owners wait for its dependents too
	case slices.Contains(n.meta.Finalizers, metav1.FinalizerOrphanDependents):
		p.delete = metav1.DeletePropagationOrphan
	case slices.Contains(n.meta.Finalizers, metav1.FinalizerDeleteDependents):
		p.delete = metav1.DeletePropagationForeground
	default:
		p.delete = metav1.DeletePropagationBackground
	}
}

// causeOf returns an owner in the version that is the cause of deleting its dependents: the one that waits for them, or that was deleted.
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

// maxCycle bounds the number of nodes that the search for cycles visits.
const maxCycle = 10_000

// inCycle reports whether an object that waits for its dependents waits only for itself: all objects that block it wait too, in the end for it.
// One of them has to be deleted first.
func (g *graph) inCycle(n *node) bool {
	keep := map[*node]bool{} // all objects that the object waits for
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
	// Objects that do not wait for the object are deleted before it.
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

// String returns the plan's object for messages.
func (p plan) String() string {
	if p.object.meta == nil {
		return string(p.about)
	}
	return p.object.String()
}

// empty reports whether there is nothing to do.
func (p plan) empty() bool {
	return len(p.ask) == 0 && !p.requeue && len(p.release) == 0 && p.delete == "" && p.finish == ""
}

// unownedMessage returns the message of the Event about an owner in another namespace.
func unownedMessage(namespace string, ref metav1.OwnerReference) string {
	return fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q", ref.APIVersion, ref.Kind, namespace, ref.Name, ref.UID, namespace)
}
