package scheduler

import (
	"fmt"
	"math"

	"skiff/internal/scheduling"
)

// staleNodes holds nodes whose scores are not cached.
type staleNodes struct {
	nodes     []*scheduling.Node
	positions []int32
	scores    []int64
}

// score sums up the scores of the feasible nodes.
func (c *cycle) score(s *search, feasible []*scheduling.Node, out *outcome) error {
	n := len(feasible)
	c.totals, c.raw = resized(c.totals, n), resized(c.raw, n)
	clear(c.totals)
	out.positions, out.scores = c.positions, c.scores[:0]
	out.plugins, out.weights = make([]string, 0, len(s.profile.Scores)), make([]int64, 0, len(s.profile.Scores))
	for i, plugin := range s.profile.Scores {
		scorer, status := plugin.PreScore(s.pod, s.snapshot, feasible)
		if !status.OK() {
			return fmt.Errorf("running PreScore plugin %q: %w", plugin.Name(), asError(status))
		}
		if scorer == nil {
			continue
		}
		if s.cached != nil && i < maxCachedScores && scorer.Local() {
			c.cachedScores(s.cached, i, scorer, feasible)
		} else {
			scorer.Score(feasible, c.raw)
		}
		scorer.Normalize(feasible, c.raw)
		for j, score := range c.raw {
			if score < 0 || score > scheduling.MaxScore {
				return fmt.Errorf("plugin %q returns an invalid score %v, it should in the range of [0, %v] after normalizing", plugin.Name(), score, scheduling.MaxScore)
			}
			c.totals[j] += score * plugin.Weight
			out.scores = append(out.scores, uint8(score))
		}
		out.plugins, out.weights = append(out.plugins, plugin.Name()), append(out.weights, plugin.Weight)
	}
	c.scores = out.scores
	return nil
}

// cachedScores fills in the raw scores of a plugin that looks only at the node, calling it only for nodes that changed.
func (c *cycle) cachedScores(known *cachedResults, plugin int, scorer scheduling.Scorer, feasible []*scheduling.Node) {
	raw, bit := known.scores(plugin), uint32(1)<<plugin
	c.stale.nodes, c.stale.positions = c.stale.nodes[:0], c.stale.positions[:0]
	for j, at := range c.positions {
		if known.scored[at]&bit == 0 {
			c.stale.nodes, c.stale.positions = append(c.stale.nodes, feasible[j]), append(c.stale.positions, at)
		}
	}
	if len(c.stale.nodes) > 0 {
		c.stale.scores = resized(c.stale.scores, len(c.stale.nodes))
		scorer.Score(c.stale.nodes, c.stale.scores)
		for j, at := range c.stale.positions {
			raw[at] = c.stale.scores[j]
			known.scored[at] |= bit
		}
	}
	for j, at := range c.positions {
		c.raw[j] = raw[at]
	}
}

// pick returns the node with the best total. Nodes with equal totals take turns, so that equal pods are spread.
func (c *cycle) pick(feasible []*scheduling.Node) *scheduling.Node {
	best, bestTotal, bestAhead := 0, int64(math.MinInt64), int32(0)
	turn := int32(c.turn)
	for i, total := range c.totals {
		if total < bestTotal {
			continue
		}
		// ahead is the distance from the turn: positions behind it come after all those ahead.
		ahead := c.positions[i] - turn
		if ahead < 0 {
			ahead += math.MaxInt32/2 + 1
		}
		if total > bestTotal || ahead < bestAhead {
			best, bestTotal, bestAhead = i, total, ahead
		}
	}
	c.turn = int(c.positions[best]) + 1
	return feasible[best]
}

func resized(s []int64, n int) []int64 {
	if cap(s) < n {
		return make([]int64, n, n+n/4)
	}
	return s[:n]
}
