package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"skiff/internal/scheduling"
)

// errNoNodes says that there is nothing to schedule on.
var errNoNodes = errors.New("no nodes available to schedule pods")

// diagnosis is why nodes were refused for a pod.
type diagnosis struct {
	nodes     int       // there are
	refused   []refusal // in the order they were looked at
	refusedBy pluginSet
	// absent is why nodes were not looked at, if not because enough others were found.
	absent *scheduling.Status
	// before is why the pod was refused without looking at any node.
	before string
	// after is what came of preemption.
	after string
}

// refusal is a node that was refused.
type refusal struct {
	at      int32 // its position
	verdict *verdict
}

func (d *diagnosis) refuse(at int32, v *verdict, plugin pluginSet) {
	d.refused = append(d.refused, refusal{at, v})
	d.refusedBy |= plugin
}

// everywhere notes that the pod is refused on all nodes alike.
func (d *diagnosis) everywhere(status *scheduling.Status, by pluginSet) {
	d.absent, d.before, d.refusedBy = status, status.Message(), by
}

// message says why no node takes the pod, as users have come to read it: "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had
// untolerated taint(s). preemption: ...".
func (d *diagnosis) message() string {
	var b strings.Builder
	fmt.Fprintf(&b, "0/%d nodes are available:", d.nodes)
	if d.before != "" {
		fmt.Fprintf(&b, " %s.", d.before)
	} else if reasons := d.reasons(); len(reasons) > 0 {
		fmt.Fprintf(&b, " %s.", strings.Join(reasons, ", "))
	}
	if d.after != "" {
		fmt.Fprintf(&b, " %s", d.after)
	}
	return b.String()
}

func (d *diagnosis) reasons() []string {
	counts := map[string]int{}
	for _, r := range d.refused {
		for _, reason := range r.verdict.Reasons {
			counts[reason]++
		}
	}
	if absent := d.nodes - len(d.refused); absent > 0 && d.absent != nil {
		for _, reason := range d.absent.Reasons {
			counts[reason] += absent
		}
	}
	reasons := make([]string, 0, len(counts))
	for reason, count := range counts {
		reasons = append(reasons, fmt.Sprintf("%d %s", count, reason))
	}
	slices.Sort(reasons)
	return reasons
}

// asError is what a plugin could not do.
func asError(s *scheduling.Status) error {
	if s.Err != nil {
		return s.Err
	}
	return errors.New(s.Message())
}
