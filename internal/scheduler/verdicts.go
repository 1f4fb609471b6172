package scheduler

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"skiff/internal/client"
	"skiff/internal/journey"
)

// The journey of a pod lists all nodes if there are few, or some of each kind.
const (
	few  = 12
	some = 4
)

func maxListed(nodes int) int {
	if nodes <= few {
		return nodes
	}
	return some
}

// recordVerdicts adds to a pod's journey what was found out about the nodes: the best with their scores, and refused ones. It takes a few microseconds
// however many there are.
func recordVerdicts(span *client.Span, attempt int, chosen string, order *nodeOrder, out *outcome) {
	if span == nil {
		return
	}
	if chosen != "" {
		span.Set("node", chosen)
	}
	span.Set("attempt", strconv.Itoa(attempt))
	span.Set("looked at", strconv.Itoa(out.evaluated)+" of "+strconv.Itoa(out.nodes)+" nodes")
	if out.preFilter != "" {
		span.Set("refused", out.preFilter)
	}
	if chosen != "" && len(out.positions) == 0 {
		span.Set(journey.AboutNode+chosen, "the only one that fits")
	}
	best := out.best(maxListed(len(out.positions)))
	for _, i := range best {
		span.Set(journey.AboutNode+order.names[out.positions[i]], out.describe(i))
	}
	if i := slices.IndexFunc(out.positions, func(at int32) bool { return order.names[at] == chosen }); i >= 0 && !slices.Contains(best, i) {
		best = append(best, i) // one of many with the same score
		span.Set(journey.AboutNode+chosen, out.describe(i))
	}
	refused := out.refused[:maxListed(len(out.refused))]
	for _, r := range refused {
		status := r.verdict.Status
		span.Set(journey.AboutNode+order.names[r.at], "refused by "+status.Plugin+": "+strings.Join(status.Reasons, ", "))
	}
	if more := len(out.refused) - len(refused); more > 0 {
		span.Set("also refused", strconv.Itoa(more)+" more nodes")
	}
	if more := len(out.positions) - len(best); more > 0 {
		span.Set("also fit", strconv.Itoa(more)+" more nodes")
	}
}

func (s *scored) total(i int) (total int64) {
	for j, weight := range s.weights {
		total += int64(s.scores[j*len(s.positions)+i]) * weight
	}
	return total
}

// best returns the nodes with the highest scores, the highest first.
func (s *scored) best(most int) []int {
	type candidate struct {
		at    int
		total int64
	}
	var best []candidate
	for i := range s.positions {
		c := candidate{i, s.total(i)}
		if len(best) == most && (most == 0 || c.total <= best[most-1].total) {
			continue
		}
		at, _ := slices.BinarySearchFunc(best, c, func(a, b candidate) int { return cmp.Or(cmp.Compare(b.total, a.total), cmp.Compare(a.at, b.at)) })
		if at < most {
			best = slices.Insert(best, at, c)
			best = best[:min(len(best), most)]
		}
	}
	out := make([]int, len(best))
	for i, c := range best {
		out[i] = c.at
	}
	return out
}

// describe returns a node's scores: "score 462: NodeResourcesFit 91, TaintToleration 100 × 3".
func (s *scored) describe(i int) string {
	b := strconv.AppendInt([]byte("score "), s.total(i), 10)
	for j, plugin := range s.plugins {
		b = append(b, []byte{':', ','}[min(j, 1)], ' ')
		b = append(append(b, plugin...), ' ')
		b = strconv.AppendUint(b, uint64(s.scores[j*len(s.positions)+i]), 10)
		if s.weights[j] != 1 {
			b = strconv.AppendInt(append(b, " × "...), s.weights[j], 10)
		}
	}
	return string(b)
}
