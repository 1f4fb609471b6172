package journey

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A Tree is the journey of an object: what caused it, and all that it caused.
type Tree struct {
	Resource  string // "deployments.apps"
	Namespace string `json:",omitempty"`
	Name      string
	UID       string
	// Whole is set if the beginning is recorded: the request that created the object, or what caused that.
	Whole bool
	// Roots are the requests without a cause in the cluster: the one that began the journey, then later ones that changed the object.
	Roots []*Node
	// Ready is when the last of the object's pods was ready for the first time, as kubelets reported it; zero if none was.
	Ready time.Time `json:",omitzero"`
	// Pending are the initializers that the object still waits for, in order: nobody sees it yet, since it was Created.
	Pending []string  `json:",omitempty"`
	Created time.Time `json:",omitzero"`
	// Failures are the webhooks and policies that refused a write of the object, or one made because of it, or that failed; the last first.
	Failures []Failure `json:",omitempty"`
}

// The kinds of nodes of a tree.
const (
	KindRequest = "request" // a request to the API server
	KindStage   = "stage"   // a stage of a request
	KindWork    = "work"    // a span of a component
)

// A Node is a request, a stage or a span. Its children happened within it or because of it.
type Node struct {
	Kind      string
	ID        SpanID `json:",omitzero"`
	Stage     string // what was done: a request's verb, "authentication", "sandbox"
	Component string `json:",omitempty"`
	User      string `json:",omitempty"`
	// Resource, Namespace, Name and UID identify the object: the one that a request names, or the one that work was done for.
	Resource  string `json:",omitempty"`
	Namespace string `json:",omitempty"`
	Name      string `json:",omitempty"`
	UID       string `json:",omitempty"`

	Start    time.Time
	Duration time.Duration
	// Until is when the node and all nodes below it had ended.
	Until time.Time
	Code  int    `json:",omitempty"`
	Error string `json:",omitempty"`
	// Critical is set for nodes on the critical path: the object would have been ready earlier had they been faster.
	Critical   bool        `json:",omitempty"`
	Attributes []Attribute `json:",omitempty"`
	Writes     []WriteView `json:",omitempty"`
	Causes     []Cause     `json:",omitempty"`
	Children   []*Node     `json:",omitempty"` // in the order of their start
	// Elsewhere counts the children that are left out, of a node that is in the tree only because it led to the object.
	Elsewhere int `json:",omitempty"`

	parent *Node
}

// End returns when the node itself ended.
func (n *Node) End() time.Time { return n.Start.Add(n.Duration) }

// Walk calls visit for a node and all nodes below it, parents first.
func (n *Node) Walk(visit func(n *Node, depth int)) { n.walk(visit, 0) }

func (n *Node) walk(visit func(*Node, int), depth int) {
	visit(n, depth)
	for _, c := range n.Children {
		c.walk(visit, depth+1)
	}
}

// Attribute returns the value of an attribute, or "".
func (n *Node) Attribute(key string) string {
	for _, a := range n.Attributes {
		if a.Key == key {
			return a.Value
		}
	}
	return ""
}

// Last returns the uid of the object that was last written under a name, for objects that are deleted. It returns "" if none is recorded.
func (r *Recorder) Last(resource, namespace, name string) (uid string) {
	for _, v := range r.Snapshot() {
		if v.Namespace != namespace || v.Name != name || len(v.Writes) == 0 {
			continue
		}
		if whole, _, _ := strings.Cut(v.Resource, "/"); whole == resource && v.Writes[0].Resource == resource {
			uid = v.Writes[0].UID
		}
	}
	return uid
}

// Tree returns the journey of an object. It shares nothing with the recorder.
func (r *Recorder) Tree(uid string) *Tree {
	var requests []TraceView
	if r != nil {
		requests = r.views(func(rec *record) bool { return rec.inJourney() })
	}
	return newForest(requests, r.Spans()).tree(uid)
}

// Refused returns the journey of an object of which nothing is recorded but failures: the requests that were refused.
func (r *Recorder) Refused(list []Failure) *Tree {
	t := &Tree{Failures: list}
	f := newForest(r.views(func(*record) bool { return true }), r.Spans())
	for _, failure := range slices.Backward(list) {
		root := f.spans[failure.Request]
		if root == nil || slices.Contains(t.Roots, root) {
			continue
		}
		kept := map[*Node]bool{}
		root.Walk(func(n *Node, _ int) { kept[n] = true })
		root.prune(kept)
		t.Roots = append(t.Roots, root)
	}
	return t
}

// forest is all recorded requests and spans, joined by causes.
type forest struct {
	nodes  []*Node // in the order of their start
	spans  map[SpanID]*Node
	writes map[string][]objectWrite // by object, in order of revision
}

type objectWrite struct {
	revision int64
	node     *Node
}

func newForest(requests []TraceView, work []Span) *forest {
	f := &forest{spans: map[SpanID]*Node{}, writes: map[string][]objectWrite{}}
	parents := map[*Node]SpanID{}
	for i := range requests {
		n := requestNode(&requests[i])
		f.add(n, parents, requests[i].Parent)
		for _, w := range n.Writes {
			f.writes[w.UID] = append(f.writes[w.UID], objectWrite{w.Revision, n})
		}
	}
	for i := range work {
		f.add(workNode(&work[i]), parents, work[i].Parent)
	}
	for _, list := range f.writes {
		slices.SortFunc(list, func(a, b objectWrite) int { return cmp.Compare(a.revision, b.revision) })
	}
	slices.SortStableFunc(f.nodes, func(a, b *Node) int { return a.Start.Compare(b.Start) })
	for _, n := range f.nodes {
		f.setObject(n)
		f.join(n, parents[n])
	}
	return f
}

func (f *forest) add(n *Node, parents map[*Node]SpanID, parent SpanID) {
	f.nodes = append(f.nodes, n)
	f.spans[n.ID] = n
	parents[n] = parent
}

func requestNode(v *TraceView) *Node {
	n := &Node{Kind: KindRequest, ID: v.Span, Stage: v.Verb, Component: v.Component, User: v.User, Resource: v.Resource, Namespace: v.Namespace,
		Name: v.Name, Start: v.Start, Duration: v.Duration, Code: v.Code, Writes: v.Writes}
	if len(v.Writes) > 0 {
		n.UID = v.Writes[0].UID
	}
	for _, c := range v.Causes {
		n.Causes = append(n.Causes, c.Cause)
	}
	for _, s := range v.Stages {
		n.Children = append(n.Children, &Node{Kind: KindStage, Stage: s.Name, Start: v.Start.Add(s.Begin), Duration: s.Duration, parent: n})
	}
	return n
}

func workNode(s *Span) *Node {
	n := &Node{Kind: KindWork, ID: s.Span, Stage: s.Stage, Component: s.Component, User: s.Source, Start: s.Start, Duration: s.Duration,
		Error: s.Error, Attributes: s.Attributes, Causes: s.Causes}
	if len(s.Causes) > 0 {
		n.UID = s.Causes[0].UID
	}
	return n
}

// setObject sets the resource and name of the object of a component's work, of which a span has only the uid.
func (f *forest) setObject(n *Node) {
	if n.Kind != KindWork {
		return
	}
	for _, w := range f.writes[n.UID] {
		if w.node.UID == n.UID {
			whole, _, _ := strings.Cut(w.node.Resource, "/")
			n.Resource, n.Namespace, n.Name = whole, w.node.Namespace, w.node.Name
			return
		}
	}
}

// join makes a node a child of the node that it happened within, or else of the one that caused it.
func (f *forest) join(n *Node, within SpanID) {
	p := f.spans[within]
	if p == nil || p == n {
		p = f.because(n)
	}
	for up := p; up != nil; up = up.parent {
		if up == n {
			return // a cycle, because two clocks disagree
		}
	}
	if p == nil {
		return
	}
	n.parent = p
	p.Children = append(p.Children, n)
	if p.Kind == KindRequest && n.Kind == KindWork && len(n.Causes) == 0 { // a call within the request is about what the request is about
		n.Resource, _, _ = strings.Cut(p.Resource, "/")
		n.Namespace, n.Name = p.Namespace, p.Name
	}
}

// because returns the request that wrote the newest cause of a node, before which the node could not begin. If that version's write is not recorded,
// or came after the node began, because the cause was named afterwards, the write of an older version is used.
func (f *forest) because(n *Node) (last *Node) {
	var revision int64
	for _, c := range n.Causes {
		if w := f.before(c, n); w != nil && (last == nil || c.Revision > revision) {
			last, revision = w, c.Revision
		}
	}
	return last
}

func (f *forest) before(c Cause, n *Node) (found *Node) {
	for _, w := range f.writes[c.UID] {
		if w.revision > c.Revision {
			break
		}
		if w.node != n && !w.node.Start.After(n.Start) {
			found = w.node
		}
	}
	return found
}

// tree returns the part of the forest that belongs to one object: what was done to it or because of it, and what led there.
func (f *forest) tree(uid string) *Tree {
	t := &Tree{UID: uid}
	f.describe(t)
	kept := map[*Node]bool{}
	for _, n := range f.nodes {
		if n.UID != uid || kept[n] || n.Kind == KindWork && t.aboutSibling(n.parent) {
			continue
		}
		n.Walk(func(n *Node, _ int) { kept[n] = true })
		for n.parent != nil && !kept[n.parent] {
			n = n.parent
			kept[n] = true
		}
		if n.parent == nil {
			t.Roots = append(t.Roots, n)
		}
	}
	slices.SortStableFunc(t.Roots, func(a, b *Node) int { return a.Start.Compare(b.Start) })
	for _, root := range t.Roots {
		root.prune(kept)
	}
	if len(t.Roots) > 0 {
		t.Whole = t.Roots[0].beginsWithCreation(uid)
		t.markReady()
	}
	return t
}

// aboutSibling reports whether a node is about another object of the same resource. Work caused by both, as when a ReplicaSet's pods are counted, is a
// child of the last of them, but does not make that one's journey part of this tree.
func (t *Tree) aboutSibling(n *Node) bool {
	if n == nil || n.UID == t.UID {
		return false
	}
	resource, _, _ := strings.Cut(n.Resource, "/")
	return resource == t.Resource
}

func (f *forest) describe(t *Tree) {
	for _, w := range f.writes[t.UID] {
		if w.node.UID == t.UID {
			whole, _, _ := strings.Cut(w.node.Resource, "/")
			t.Resource, t.Namespace, t.Name = whole, w.node.Namespace, w.node.Name
			return
		}
	}
}

// prune removes the children that are not kept, sorts the rest by start and sets Until.
func (n *Node) prune(kept map[*Node]bool) {
	n.Until = n.End()
	children := n.Children[:0:0]
	for _, c := range n.Children {
		if !kept[c] && c.Kind != KindStage {
			n.Elsewhere++
			continue
		}
		c.prune(kept)
		if c.Until.After(n.Until) {
			n.Until = c.Until
		}
		children = append(children, c)
	}
	slices.SortStableFunc(children, func(a, b *Node) int { return a.Start.Compare(b.Start) })
	n.Children = children
}

// beginsWithCreation reports whether a tree begins with a request without a cause and contains the creation of the object.
func (n *Node) beginsWithCreation(uid string) bool {
	if n.Kind != KindRequest || len(n.Causes) > 0 {
		return false
	}
	created := false
	n.Walk(func(n *Node, _ int) {
		created = created || n.Kind == KindRequest && n.UID == uid && n.Stage == "create" && !strings.Contains(n.Resource, "/")
	})
	return created
}
