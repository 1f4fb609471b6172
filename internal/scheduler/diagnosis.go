package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"skiff/internal/scheduling"
)

// errNoNodes says that the cluster has no nodes.
var errNoNodes = errors.New("no nodes available to schedule pods")

// diagnosis holds why nodes were refused for a pod.
type diagnosis struct {
	nodes     int       // number of nodes in the cluster
	refused   []refusal // in the order the nodes were checked
	refusedBy pluginSet
	// unchecked is why the remaining nodes were not checked, unless enough others were found.
	unchecked *scheduling.Status
	// preFilter is why the pod was refused before any node was checked.
	preFilter string
	// postFilter is the result of preemption.
	postFilter string
}

// refusal is a refused node.
type refusal struct {
	at      int32 // position of the node
	verdict *verdict
}

func (d *diagnosis) refuse(at int32, v *verdict, plugin pluginSet) {
	d.refused = append(d.refused, refusal{at, v})
	d.refusedBy |= plugin
}

// refuseAll notes that the pod is refused on all nodes for the same reason.
func (d *diagnosis) refuseAll(status *scheduling.Status, by pluginSet) {
	d.unchecked, d.preFilter, d.refusedBy = status, status.Message(), by
}

// message returns why no node takes the pod, in upstream's form: "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint(s).
// preemption: ...".
func (d *diagnosis) message() string {
	var b strings.Builder
	fmt.Fprintf(&b, "0/%d nodes are available:", d.nodes)
	if d.preFilter != "" {
		fmt.Fprintf(&b, " %s.", d.preFilter)
	} else if reasons := d.reasons(); len(reasons) > 0 {
		fmt.Fprintf(&b, " %s.", strings.Join(reasons, ", "))
	}
	if d.postFilter != "" {
		fmt.Fprintf(&b, " %s", d.postFilter)
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
	if absent := d.nodes - len(d.refused); absent > 0 && d.unchecked != nil {
		for _, reason := range d.unchecked.Reasons {
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

// asError returns a plugin's failure as an error.
func asError(s *scheduling.Status) error {
	if s.Err != nil {
		return s.Err
	}
	return errors.New(s.Message())
}
