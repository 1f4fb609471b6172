package garbagecollector

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// kindName is a kind as owner references name it.
type kindName struct{ apiVersion, kind string }

// kind is a kind of objects that the API server serves.
type kind struct {
	kindName
	resource   schema.GroupVersionResource
	namespaced bool
}

// node is an object in the graph: an observed one, or one that owner references name.
type node struct {
	uid  types.UID
	kind *kind                         // nil unless observed
	meta *metav1.PartialObjectMetadata // what trim leaves of the object; nil unless observed
	// version is the resourceVersion at which an observed object was deleted, for the journey.
	version    string
	dependents map[*node]struct{}
	blocking   int // number of references to this node that block its foreground deletion
	// claims holds the names in dependents' references to this node that differ from its observed name. Nearly all nodes have none.
	claims []claim
}

// name is the object that an owner reference names: in the namespace of the dependent, or cluster-scoped, depending on its kind.
type name struct {
	kindName
	namespace, name string
}

// claim is a name that dependents use for a node, and what is known about it.
type claim struct {
	name
	answer answer
	users  int // number of references that use it
}

// answer is what is known about a name: whether an object with that name and the node's uid exists.
type answer int

const (
	unknown answer = iota
	absent
	solid   // it exists and is not waiting
	waiting // it exists and waits for its dependents to be deleted
	invalid // a cluster-scoped object cannot have a namespaced owner
)

// graph holds the owner references between all objects. It is not safe for concurrent use.
type graph struct {
	nodes  map[types.UID]*node
	served map[kindName]*kind
	// enqueue is called with the uids of nodes that have to be reconciled.
	enqueue func(types.UID)
	// orphanedBy holds the last maxOrphaning owners that orphaned their dependents, with their deletion time. Changes of one resource are not
	// observed in order with those of another, so a dependent may be observed only after its owner is gone.
	orphanedBy map[types.UID]metav1.Time
	// orphaningOwners is a ring of the keys of orphanedBy: a new one replaces the oldest.
	orphaningOwners [maxOrphaning]types.UID
	oldestOrphaning int // index of the ring's oldest
}

// maxOrphaning is how many owners are remembered that orphaned their dependents.
const maxOrphaning = 1000

func newGraph(enqueue func(types.UID)) *graph {
	return &graph{nodes: map[types.UID]*node{}, served: map[kindName]*kind{}, enqueue: enqueue, orphanedBy: map[types.UID]metav1.Time{}}
}

// noteOrphaning remembers that an owner is deleted and its dependents stay.
func (g *graph) noteOrphaning(owner *metav1.PartialObjectMetadata) {
	if _, known := g.orphanedBy[owner.UID]; known {
		return
	}
	delete(g.orphanedBy, g.orphaningOwners[g.oldestOrphaning])
	g.orphanedBy[owner.UID], g.orphaningOwners[g.oldestOrphaning] = *owner.DeletionTimestamp, owner.UID
	g.oldestOrphaning = (g.oldestOrphaning + 1) % maxOrphaning
}

// isOrphanOf reports whether an object existed when an owner orphaned its dependents. Objects created later were no dependents.
func (g *graph) isOrphanOf(m *metav1.PartialObjectMetadata, owner types.UID) bool {
	deleted, orphaned := g.orphanedBy[owner]
	return orphaned && !m.CreationTimestamp.After(deleted.Time)
}

// isWaiting reports whether an object is being deleted in the foreground. If it has both finalizers, it orphans its dependents.
func isWaiting(m *metav1.PartialObjectMetadata) bool {
	return m != nil && m.DeletionTimestamp != nil && slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents) && !isOrphaning(m)
}

// isOrphaning reports whether an object is being deleted and orphans its dependents.
func isOrphaning(m *metav1.PartialObjectMetadata) bool {
	return m != nil && m.DeletionTimestamp != nil && slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents)
}

// blocks reports whether a reference blocks its owner's foreground deletion. An object does not block itself.
func blocks(dependent *node, ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion && ref.UID != dependent.uid
}

// nameIn returns the name that a reference in an object of a namespace means.
func nameIn(namespace string, ref metav1.OwnerReference) name {
	return name{kindName{ref.APIVersion, ref.Kind}, namespace, ref.Name}
}

// isCalled reports whether a node was observed under a name.
func (n *node) isCalled(by name) bool {
	return n.meta != nil && n.kind.kindName == by.kindName && n.meta.Name == by.name && (!n.kind.namespaced || n.meta.Namespace == by.namespace)
}

// claim returns what is known about a name of the node, or nil.
func (n *node) claim(by name) *claim {
	for i := range n.claims {
		if n.claims[i].name == by {
			return &n.claims[i]
		}
	}
	return nil
}

// observe adds or updates an object.
func (g *graph) observe(k *kind, m *metav1.PartialObjectMetadata) {
	n := g.node(m.UID)
	before := n.meta
	n.kind, n.meta = k, m
	if before == nil {
		g.firstObserved(n)
	}
	g.updateOwners(n, before)
	switch {
	case isWaiting(m) && !isWaiting(before):
		g.enqueue(n.uid)
		for dependent := range n.dependents {
			g.enqueue(dependent.uid)
		}
	case isOrphaning(m) && !isOrphaning(before):
		g.enqueue(n.uid)
	}
}

func (g *graph) node(uid types.UID) *node {
	n := g.nodes[uid]
	if n == nil {
		n = &node{uid: uid}
		g.nodes[uid] = n
	}
	return n
}

// firstObserved resolves the claims of a node that has been observed for the first time.
func (g *graph) firstObserved(n *node) {
	n.version = ""
	g.reclaim(n, nil)
	for dependent := range n.dependents {
		if len(dependent.meta.OwnerReferences) > 1 { // it may have waited for this owner to be observed
			g.enqueue(dependent.uid)
		}
	}
}

// updateOwners connects a node with its owners, and disconnects it from former ones.
func (g *graph) updateOwners(n *node, before *metav1.PartialObjectMetadata) {
	var old []metav1.OwnerReference
	if before != nil {
		old = before.OwnerReferences
	}
	if sameOwners(old, n.meta.OwnerReferences) {
		return
	}
	for _, ref := range n.meta.OwnerReferences {
		g.attach(n, ref)
	}
	for _, ref := range old {
		g.detach(n, before.Namespace, ref)
	}
	for _, ref := range n.meta.OwnerReferences {
		if a := g.answer(n, ref); a == absent || a == waiting {
			g.enqueue(n.uid)
		}
	}
}

func sameOwners(a, b []metav1.OwnerReference) bool { return slices.EqualFunc(a, b, sameOwner) }

// sameOwner compares the fields of references that the graph depends on.
func sameOwner(a, b metav1.OwnerReference) bool {
	blocks := func(r metav1.OwnerReference) bool { return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion }
	return a.UID == b.UID && a.Name == b.Name && a.Kind == b.Kind && a.APIVersion == b.APIVersion && blocks(a) == blocks(b)
}

func (g *graph) attach(n *node, ref metav1.OwnerReference) {
	owner := g.node(ref.UID)
	if owner.dependents == nil {
		owner.dependents = map[*node]struct{}{}
	}
	owner.dependents[n] = struct{}{}
	if blocks(n, ref) {
		owner.blocking++
	}
	if by := nameIn(n.meta.Namespace, ref); !owner.isCalled(by) {
		g.addClaim(owner, by, unknown)
	}
}

// addClaim counts a reference under a name that the node was not observed under. known is the answer if the name is new.
func (g *graph) addClaim(owner *node, by name, known answer) {
	c := owner.claim(by)
	if c == nil {
		owner.claims = append(owner.claims, claim{name: by, answer: known})
		c = &owner.claims[len(owner.claims)-1]
	}
	c.users++
	if c.answer == unknown {
		g.enqueue(owner.uid)
	}
}

func (g *graph) detach(n *node, namespace string, ref metav1.OwnerReference) {
	owner := g.nodes[ref.UID]
	if owner == nil {
		return
	}
	if n.meta == nil || !slices.ContainsFunc(n.meta.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == ref.UID }) {
		delete(owner.dependents, n)
	}
	if blocks(n, ref) {
		owner.blocking--
	}
	if c := owner.claim(nameIn(namespace, ref)); c != nil {
		if c.users--; c.users <= 0 {
			owner.claims = slices.DeleteFunc(owner.claims, func(c claim) bool { return c.users <= 0 })
		}
	}
	if isWaiting(owner.meta) {
		g.enqueue(owner.uid)
	}
	g.drop(owner)
}

// drop removes a node that was neither observed nor is referred to.
func (g *graph) drop(n *node) {
	if n.meta == nil && len(n.dependents) == 0 {
		delete(g.nodes, n.uid)
	}
}

// deleted removes an object that was deleted.
func (g *graph) deleted(k *kind, m *metav1.PartialObjectMetadata) {
	n := g.nodes[m.UID]
	if n == nil || n.meta == nil || n.kind != k {
		return
	}
	called := name{k.kindName, n.meta.Namespace, n.meta.Name}
	g.unobserve(n)
	n.version = m.ResourceVersion
	// It is absent for references with its own name; about other names the API server is asked.
	g.reclaim(n, func(by name) answer {
		if by.kindName == called.kindName && by.name == called.name && (!k.namespaced || by.namespace == called.namespace) {
			return absent
		}
		return unknown
	})
	for dependent := range n.dependents {
		g.enqueue(dependent.uid)
	}
}

// unobserve makes an observed node one that was not.
func (g *graph) unobserve(n *node) {
	was := n.meta
	n.meta, n.kind = nil, nil
	for _, ref := range was.OwnerReferences {
		g.detach(n, was.Namespace, ref)
	}
	g.drop(n)
}

// removeKind makes all objects of a kind that is no longer monitored unobserved: whether they exist is not known any more.
func (g *graph) removeKind(k *kind) {
	for _, n := range g.nodes {
		if n.kind == k {
			g.unobserve(n)
			g.reclaim(n, nil)
			g.enqueue(n.uid)
		}
	}
}

// reclaim recomputes the claims of a node. A new claim gets the answer of known, if that is given; otherwise former claims keep their answers.
func (g *graph) reclaim(n *node, known func(name) answer) {
	before := n.claims
	n.claims = nil
	for dependent := range n.dependents {
		for _, ref := range dependent.meta.OwnerReferences {
			by := nameIn(dependent.meta.Namespace, ref)
			if ref.UID != n.uid || n.isCalled(by) {
				continue
			}
			a := unknown
			if known != nil {
				a = known(by)
			} else if i := slices.IndexFunc(before, func(c claim) bool { return c.name == by }); i >= 0 {
				a = before[i].answer
			}
			g.addClaim(n, by, a)
		}
	}
}

// serve sets the served kinds. Names of new kinds can be verified now.
func (g *graph) serve(kinds map[kindName]*kind) {
	g.served = kinds
	for _, n := range g.nodes {
		if slices.ContainsFunc(n.claims, func(c claim) bool { return c.answer == unknown }) {
			g.enqueue(n.uid)
		}
	}
}

// verified records the API server's answer about a name.
func (g *graph) verified(uid types.UID, by name, said answer) {
	n := g.nodes[uid]
	if n == nil {
		return
	}
	c := n.claim(by)
	if c == nil || c.answer == said {
		return
	}
	c.answer = said
	for dependent := range n.dependents {
		for _, ref := range dependent.meta.OwnerReferences {
			if ref.UID == uid && nameIn(dependent.meta.Namespace, ref) == by {
				g.enqueue(dependent.uid)
			}
		}
	}
}

// answer returns what is known about an owner of an object.
func (g *graph) answer(n *node, ref metav1.OwnerReference) answer {
	by := nameIn(n.meta.Namespace, ref)
	if g.isInvalid(by) {
		return invalid
	}
	owner := g.nodes[ref.UID]
	if owner == nil {
		return unknown
	}
	known := solid
	if !owner.isCalled(by) {
		c := owner.claim(by)
		if c == nil {
			return unknown
		}
		known = c.answer
	}
	if known == solid && isWaiting(owner.meta) {
		return waiting
	}
	return known
}

// isInvalid reports whether a name cannot be an owner's: it is in a reference of a cluster-scoped object and its kind is namespaced.
func (g *graph) isInvalid(by name) bool {
	k := g.served[by.kindName]
	return k != nil && k.namespaced && by.namespace == ""
}
