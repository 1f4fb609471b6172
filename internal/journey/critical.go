package journey

import (
	"slices"
	"strings"
	"time"
)

// markReady finds the moment at which the last pod was ready for the first time, and marks what led to it. Without such a moment, what
// led to the last thing that happened is marked.
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

// slack is how far the end of a thing may lie behind the beginning of the next without having been waited for: clocks are read at slightly
// different moments.
const slack = 100 * time.Microsecond

// markChain marks a node and what it had to wait for: first what was done for the same object, wherever in the tree, as far as that goes, then
// the causes of that. A cause counts even if it ended later: a node may have heard of a binding before who wrote it did.
func (n *Node) markChain() {
	n.Critical = true
	origin := n
	for origin.parent != nil && origin.parent.UID == n.UID && origin.parent.Kind != KindStage {
		origin = origin.parent
	}
	if n.UID != "" && origin != n {
		var same []*Node
		origin.Walk(func(c *Node, _ int) {
			if c.UID == n.UID && c.Kind != KindStage && !c.reports() && !c.within(n) {
				same = append(same, c)
			}
		})
		markBefore(same, n.Start)
		for up := n; up != origin; up = up.parent {
			if !up.parent.reports() {
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

// reports says whether a node is a request that tells how things are: nothing waits for that.
func (n *Node) reports() bool { return strings.HasSuffix(n.Resource, "/status") }

// within says whether a node is another one or a part of it.
func (n *Node) within(other *Node) bool {
	for up := n; up != nil; up = up.parent {
		if up == other {
			return true
		}
	}
	return false
}

// markBefore marks those of some nodes that were waited for until a moment: the one that ended last before it, then the one that ended last
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

// markInside marks the parts of a node that were waited for. What came of a request's write is no part of it.
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
