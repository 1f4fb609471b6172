package garbagecollector

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// kindName is how owner references name kinds.
type kindName struct{ apiVersion, kind string }

// kind is a kind of objects that the server has.
type kind struct {
	kindName
	resource   schema.GroupVersionResource
	namespaced bool
}

// node is an object in the graph: one that was observed, or one that others say owns them.
type node struct {
	uid  types.UID
	kind *kind                         // of an observed object
	meta *metav1.PartialObjectMetadata // of an observed object: what slim leaves of it
	// version is that at which an object that was observed went, for the journey.
	version    string
	dependents map[*node]struct{}
	blocking   int // how many references to this node block its deletion in the foreground
	// claims are the names under which dependents refer to this node that are not its name as observed. Nearly all nodes have none.
	claims []claim
}

// name is whom an owner reference means: an object of that name in the namespace of the dependent, or in none, as its kind has it.
type name struct {
	kindName
	namespace, name string
}

// claim is a name that dependents use for a node, and what became of it.
type claim struct {
	name
	answer answer
	users  int // references that use it
}

// answer is what is known about a name: whether there is an object with that name and the uid of the node.
type answer int

const (
	unknown answer = iota
	absent
	solid   // it is there
	waiting // it is there and waits for its dependents to be deleted
	invalid // an object without a namespace cannot have an owner in one
)

// graph is who owns whom. It is not safe for concurrent use.
type graph struct {
	nodes  map[types.UID]*node
	served map[kindName]*kind
	// wake is told of nodes that something may be to be done about.
	wake func(types.UID)
	// sparing are the owners that were let go last without what depends on them, the newest in place of the oldest, and when they were deleted. Changes of one
	// resource are not heard of in order with those of another, so a dependent may turn up only after its owner has gone.
	sparing  map[types.UID]metav1.Time
	spared   [maxSpared]types.UID
	nextSpot int
}

// maxSpared is how many owners are remembered to have been let go without their dependents.
const maxSpared = 1000

func newGraph(wake func(types.UID)) *graph {
	return &graph{nodes: map[types.UID]*node{}, served: map[kindName]*kind{}, wake: wake, sparing: map[types.UID]metav1.Time{}}
}

// spare takes note that an owner goes and what depends on it stays.
func (g *graph) spare(owner *metav1.PartialObjectMetadata) {
	if _, known := g.sparing[owner.UID]; known {
		return
	}
	delete(g.sparing, g.spared[g.nextSpot])
	g.sparing[owner.UID], g.spared[g.nextSpot] = *owner.DeletionTimestamp, owner.UID
	g.nextSpot = (g.nextSpot + 1) % maxSpared
}

// isSpared says whether an object that refers to an owner was there when that was deleted without its dependents. What was created later never was one.
func (g *graph) isSpared(m *metav1.PartialObjectMetadata, owner types.UID) bool {
	deleted, spares := g.sparing[owner]
	return spares && !m.CreationTimestamp.After(deleted.Time)
}

// isWaiting says whether an object is being deleted in the foreground. Should it carry both finalizers, what depends on it is to stay.
func isWaiting(m *metav1.PartialObjectMetadata) bool {
	return m != nil && m.DeletionTimestamp != nil && slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents) && !isOrphaning(m)
}

// isOrphaning says whether an object is being deleted and its dependents are to stay.
func isOrphaning(m *metav1.PartialObjectMetadata) bool {
	return m != nil && m.DeletionTimestamp != nil && slices.Contains(m.Finalizers, metav1.FinalizerOrphanDependents)
}

// blocks says whether a reference keeps its owner from being deleted in the foreground. An object cannot wait for itself.
func blocks(dependent *node, ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion && ref.UID != dependent.uid
}

// nameIn is the name that a reference from a namespace means.
func nameIn(namespace string, ref metav1.OwnerReference) name {
	return name{kindName{ref.APIVersion, ref.Kind}, namespace, ref.Name}
}

// isCalled says whether a node was observed under a name.
func (n *node) isCalled(by name) bool {
	return n.meta != nil && n.kind.kindName == by.kindName && n.meta.Name == by.name && (!n.kind.namespaced || n.meta.Namespace == by.namespace)
}

// claim finds what is known about a name for the node.
func (n *node) claim(by name) *claim {
	for i := range n.claims {
		if n.claims[i].name == by {
			return &n.claims[i]
		}
	}
	return nil
}

// observe takes note of an object, new or changed.
func (g *graph) observe(k *kind, m *metav1.PartialObjectMetadata) {
	n := g.node(m.UID)
	before := n.meta
	n.kind, n.meta = k, m
	if before == nil {
		g.appeared(n)
	}
	g.relate(n, before)
	switch {
	case isWaiting(m) && !isWaiting(before):
		g.wake(n.uid)
		for dependent := range n.dependents {
			g.wake(dependent.uid)
		}
	case isOrphaning(m) && !isOrphaning(before):
		g.wake(n.uid)
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

// appeared is called when a node has been observed that was not before. What its dependents know of it is no longer from hearsay.
func (g *graph) appeared(n *node) {
	n.version = ""
	g.reclaim(n, nil)
	for dependent := range n.dependents {
		if len(dependent.meta.OwnerReferences) > 1 { // it may have waited for this to do something about the others
			g.wake(dependent.uid)
		}
	}
}

// relate connects a node with its owners, whoever they were before.
func (g *graph) relate(n *node, before *metav1.PartialObjectMetadata) {
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
			g.wake(n.uid)
		}
	}
}

func sameOwners(a, b []metav1.OwnerReference) bool { return slices.EqualFunc(a, b, sameOwner) }

// sameOwner compares what counts of references.
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
		g.use(owner, by, unknown)
	}
}

// use notes a reference under a name that the node was not observed under, and what is known of that name if nothing is yet.
func (g *graph) use(owner *node, by name, known answer) {
	c := owner.claim(by)
	if c == nil {
		owner.claims = append(owner.claims, claim{name: by, answer: known})
		c = &owner.claims[len(owner.claims)-1]
	}
	c.users++
	if c.answer == unknown {
		g.wake(owner.uid)
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
		g.wake(owner.uid)
	}
	g.drop(owner)
}

// drop forgets a node that nobody speaks of.
func (g *graph) drop(n *node) {
	if n.meta == nil && len(n.dependents) == 0 {
		delete(g.nodes, n.uid)
	}
}

// gone takes note of the end of an object.
func (g *graph) gone(k *kind, m *metav1.PartialObjectMetadata) {
	n := g.nodes[m.UID]
	if n == nil || n.meta == nil || n.kind != k {
		return
	}
	called := name{k.kindName, n.meta.Namespace, n.meta.Name}
	g.vanish(n)
	n.version = m.ResourceVersion
	// Under the name it had, it is absent for all who mean that one; under others the server is asked.
	g.reclaim(n, func(by name) answer {
		if by.kindName == called.kindName && by.name == called.name && (!k.namespaced || by.namespace == called.namespace) {
			return absent
		}
		return unknown
	})
	for dependent := range n.dependents {
		g.wake(dependent.uid)
	}
}

// vanish makes a node one that is not observed.
func (g *graph) vanish(n *node) {
	was := n.meta
	n.meta, n.kind = nil, nil
	for _, ref := range was.OwnerReferences {
		g.detach(n, was.Namespace, ref)
	}
	g.drop(n)
}

// forget takes note that a kind is no longer followed: what it had is neither there nor gone, for all that is known.
func (g *graph) forget(k *kind) {
	for _, n := range g.nodes {
		if n.kind == k {
			g.vanish(n)
			g.reclaim(n, nil)
			g.wake(n.uid)
		}
	}
}

// reclaim works out anew which names dependents use for a node. Names that were claims before keep their answers, others have the one that is
// given, if any is.
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
			g.use(n, by, a)
		}
	}
}

// serve sets the kinds that there are. Names of kinds that were not there can be looked into now.
func (g *graph) serve(kinds map[kindName]*kind) {
	g.served = kinds
	for _, n := range g.nodes {
		if slices.ContainsFunc(n.claims, func(c claim) bool { return c.answer == unknown }) {
			g.wake(n.uid)
		}
	}
}

// verified takes note of what the server said about a name.
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
				g.wake(dependent.uid)
			}
		}
	}
}

// answer says what is known about an owner of an object.
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

// isInvalid says whether a name cannot be that of an owner: it is used by an object without a namespace for a kind that has one.
func (g *graph) isInvalid(by name) bool {
	k := g.served[by.kindName]
	return k != nil && k.namespaced && by.namespace == ""
}
