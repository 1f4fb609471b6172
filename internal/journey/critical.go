package journey

import (
	"slices"
	"strings"
	"time"
)

// markReady sets Ready and marks the critical path to it. If no pod was ready, it marks the
// path to the node that ended last.
func (t *Tree) markReady() {
	first := map[string]*Node{} // by pod
	var last *Node
	t.Roots[0].Walk(func(n *Node, _ int) {
		if n.Kind == KindWork && n.Stage == Ready && n.Error == "" {
			if f := first[n.UID]; f == nil || n.Start.Before(f.Start) {
				first[n.UID] = n
			}
		}
		if n.Kind != KindStage && (last == nil || n.End().After(last.End())) {
			last = n
		}
	})
	target := last
	for _, n := range first {
		if t.Ready.IsZero() || n.End().After(t.Ready) {
			target, t.Ready = n, n.End()
		}
	}
	target.markInside(target.End())
	target.markChain()
}

// slack is how much later a node may end than the next begins and still count as before it: clocks are read at slightly
// different moments.
const slack = 100 * time.Microsecond

// markChain marks a node and what it had to wait for: first what was done before for the same object, anywhere in the tree, then
// its causes. A cause is marked even if it ended later: a node may have observed a binding before the request that wrote it returned.
func (n *Node) markChain() {
	n.Critical = true
	origin := n
	for origin.parent != nil && origin.parent.UID == n.UID && origin.parent.Kind != KindStage {
		origin = origin.parent
	}
	if n.UID != "" && origin != n {
		var same []*Node
		origin.Walk(func(c *Node, _ int) {
			if c.UID == n.UID && c.Kind != KindStage && !c.isStatusUpdate() && !c.within(n) {
				same = append(same, c)
			}
		})
		markBefore(same, n.Start)
		for up := n; up != origin; up = up.parent {
			if !up.parent.isStatusUpdate() {
				up.parent.Critical = true
				up.parent.markInside(up.Start)
			}
		}
		origin.Critical = true
	}
	for up := origin; up.parent != nil; up = up.parent {
		up.parent.Critical = true
		markBefore(up.parent.Children, up.Start)
	}
}

// isStatusUpdate reports whether a node is a request that writes a status: nothing waits for that.
func (n *Node) isStatusUpdate() bool { return strings.HasSuffix(n.Resource, "/status") }

// within reports whether a node is another one or below it.
func (n *Node) within(other *Node) bool {
	for up := n; up != nil; up = up.parent {
		if up == other {
			return true
		}
	}
	return false
}

// markBefore marks the nodes that were waited for until a moment: the one that ended last before it, then the one that ended last
// before that one began, and so on.
func markBefore(nodes []*Node, moment time.Time) {
	byEnd := slices.Clone(nodes)
	slices.SortStableFunc(byEnd, func(a, b *Node) int { return a.End().Compare(b.End()) })
	for _, c := range slices.Backward(byEnd) {
		if c.End().After(moment.Add(slack)) || !c.Start.Before(moment) {
			continue
		}
		c.Critical = true
		c.markInside(moment)
		moment = c.Start
	}
}

// markInside marks the children of a node that were waited for within it. The consequences of a request's write are not within it.
func (n *Node) markInside(moment time.Time) {
	if n.Kind == KindWork {
		var parts []*Node
		for _, c := range n.Children {
			if !c.End().After(n.End().Add(slack)) {
				parts = append(parts, c)
			}
		}
		markBefore(parts, moment)
	} else if n.Kind == KindRequest {
		for _, c := range n.Children {
			if c.Kind == KindStage && c.Start.Before(moment) {
				c.Critical = true
			}
		}
	}
}
