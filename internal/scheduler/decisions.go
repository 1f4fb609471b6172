package scheduler

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/scheduling"
)

const (
	maxDecisions     = 512
	maxDecisionBytes = 4 << 20 // of what is kept of them
)

// Decision is what a scheduler found out about a pod in one attempt.
type Decision struct {
	Pod     types.NamespacedName
	UID     types.UID
	At      time.Time
	Took    time.Duration
	Attempt int
	Node    string // where it went; empty if no node took it
	Message string // why none did
	Nodes   int    // there were
	// Looked are the nodes that were looked at: enough of them in a large cluster.
	Looked []NodeDecision
}

// NodeDecision is what a scheduler found out about a node for a pod.
type NodeDecision struct {
	Node    string
	Plugin  string   // that refused it; empty if none did
	Reasons []string // why
	Total   int64    // score
	Scores  []PluginScore
}

// PluginScore is the score, 0 to 100, that a node got from a plugin, and what that counts.
type PluginScore struct {
	Plugin        string
	Score, Weight int64
}

// Decisions are the last decisions about a pod, the newest first; those of all pods if the name is empty. Only so many are kept.
func (s *Scheduler) Decisions(pod types.NamespacedName) []Decision { return s.decisions.list(pod) }

// decisions keeps the last decisions, as small as can be: a byte for a score, the node by its position.
type decisions struct {
	mu    sync.Mutex
	ring  []*kept // oldest first
	bytes int
}

type kept struct {
	Decision
	order    *nodeOrder
	statuses []*scheduling.Status
	refused  []keptRefusal
	scored   []int32 // positions
	plugins  []string
	weights  []int64
	scores   []uint8 // by plugin, then by node
}

type keptRefusal struct {
	at  int32
	why uint16 // index of statuses
}

func (k *kept) size() int {
	return 200 + len(k.Message) + 8*cap(k.statuses) + 8*cap(k.refused) + 4*cap(k.scored) + cap(k.scores) + 24*len(k.plugins)
}

// keep notes a decision. d.Looked is not set yet: it is made from the outcome when somebody asks.
func (d *decisions) keep(made Decision, order *nodeOrder, out *outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.recycle()
	k.Decision, k.order = made, order
	k.statuses, k.refused = k.statuses[:0], k.refused[:0]
	for _, r := range out.refused {
		why := slices.Index(k.statuses, r.verdict.Status)
		if why < 0 {
			why = len(k.statuses)
			k.statuses = append(k.statuses, r.verdict.Status)
		}
		k.refused = append(k.refused, keptRefusal{r.at, uint16(why)})
	}
	k.scored = append(k.scored[:0], out.positions...)
	k.plugins, k.weights = out.plugins, out.weights
	k.scores = append(k.scores[:0], out.scores...)
	d.ring = append(d.ring, k)
	d.bytes += k.size()
	for d.bytes > maxDecisionBytes && len(d.ring) > 1 {
		d.bytes -= d.ring[0].size()
		d.ring = d.ring[1:]
	}
}

// recycle returns room for a decision: that of the oldest if there are enough.
func (d *decisions) recycle() *kept {
	if len(d.ring) < maxDecisions {
		return &kept{}
	}
	k := d.ring[0]
	d.bytes -= k.size()
	d.ring = append(d.ring[:0], d.ring[1:]...)
	return k
}

func (d *decisions) list(pod types.NamespacedName) (out []Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range slices.Backward(d.ring) {
		if pod.Name == "" || k.Pod == pod {
			out = append(out, k.unfold())
		}
	}
	return out
}

// unfold spells a decision out.
func (k *kept) unfold() Decision {
	d := k.Decision
	d.Looked = make([]NodeDecision, 0, len(k.refused)+len(k.scored))
	for i, at := range k.scored {
		n := NodeDecision{Node: k.order.names[at]}
		for j, plugin := range k.plugins {
			score := int64(k.scores[j*len(k.scored)+i])
			n.Scores = append(n.Scores, PluginScore{plugin, score, k.weights[j]})
			n.Total += score * k.weights[j]
		}
		d.Looked = append(d.Looked, n)
	}
	slices.SortStableFunc(d.Looked, func(a, b NodeDecision) int { return int(b.Total - a.Total) })
	for _, r := range k.refused {
		s := k.statuses[r.why]
		d.Looked = append(d.Looked, NodeDecision{Node: k.order.names[r.at], Plugin: s.Plugin, Reasons: s.Reasons})
	}
	return d
}
