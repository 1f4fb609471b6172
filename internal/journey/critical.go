package journey

import (
	"slices"
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
	for n := target; n != nil; n = n.parent {
		n.Critical = true
		if n.parent != nil {
			n.parent.markBefore(n.Start)
		}
	}
}

// slack is how far the end of a thing may lie behind the beginning of the next without having been waited for: clocks are read at slightly
// different moments.
const slack = 100 * time.Microsecond

// markBefore marks what was waited for among a node's children until a moment: the child that ended last before it, then the one that
// ended last before that child began, and so on.
func (n *Node) markBefore(moment time.Time) {
	byEnd := slices.Clone(n.Children)
	slices.SortStableFunc(byEnd, func(a, b *Node) int { return a.End().Compare(b.End()) })
	for _, c := range slices.Backward(byEnd) {
		if c.Critical || c.End().After(moment.Add(slack)) || !c.Start.Before(moment) {
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
		n.markBefore(moment)
	} else if n.Kind == KindRequest {
		for _, c := range n.Children {
			if c.Kind == KindStage && c.Start.Before(moment) {
				c.Critical = true
			}
		}
	}
}
