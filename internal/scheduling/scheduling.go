// Package scheduling decides where a pod may run and where it would run best. It is the pure part of the scheduler: data and plugins,
// with no client, no clock and no goroutine. The scheduler drives it; the DaemonSet controller asks its predicates (see OnDaemonNode).
//
// The data is immutable: a Pod is a pod with all that plugins look at parsed once, a Node is a node with the pods on it and their sums, a
// Snapshot is all nodes at one moment. Whoever holds a snapshot makes the next one from it (Snapshot.Update); what did not change is shared.
//
// Deciding for one pod is, with the plugins of a Profile:
//
//	for each FilterPlugin:  prepared := PrepareFilter(pod, snapshot)   once; the plugin may have nothing to say, or refuse the pod everywhere
//	for each node:          prepared.Check.Filter(node)                until one refuses; the rest are the feasible nodes
//	for each ScorePlugin:   scorer := PrepareScore(pod, snapshot, feasible)
//	                        scorer.Score(feasible, scores); scorer.Normalize(feasible, scores); times weight, summed
//
// A Check that is not Adjustable and a Scorer that is Local look at nothing but the pod and the node they are given, so their answers hold as
// long as the *Node is the same pointer, and hold for every pod with the same Snapshot.Alike.
package scheduling

import (
	"strings"
	"time"
)

// Code is what a plugin says of a pod, or of a pod on a node.
type Code int

const (
	Success                      Code = iota // fits; a nil *Status says the same
	Error                                    // the plugin could not tell
	Unschedulable                            // does not fit; would if other pods went away, so preemption may help
	UnschedulableAndUnresolvable             // does not fit, whatever pods go away
)

func (c Code) String() string {
	return [...]string{"Success", "Error", "Unschedulable", "UnschedulableAndUnresolvable"}[c]
}

// Status is a plugin's verdict and why. Statuses are shared and never changed; nil is success.
type Status struct {
	Code    Code
	Plugin  string
	Reasons []string // as users see them in events: "Insufficient cpu"
	Err     error    // with Error
}

// OK reports whether the pod passed.
func (s *Status) OK() bool { return s == nil || s.Code == Success }

// Rejected reports whether the pod was refused, as opposed to passing or failing by an error.
func (s *Status) Rejected() bool {
	return s != nil && (s.Code == Unschedulable || s.Code == UnschedulableAndUnresolvable)
}

// Message is the reasons in one line.
func (s *Status) Message() string {
	if s == nil {
		return ""
	}
	return strings.Join(s.Reasons, ", ")
}

// Plugin is one rule of scheduling, set up with its arguments. It holds no state of the cluster.
type Plugin interface {
	Name() string
	// Interests are the changes that may make a pod schedulable that this plugin refused. Any other change leaves its verdict as it was.
	Interests() []Interest
}

// Gate is a plugin that keeps pods out of the scheduling queue (upstream's PreEnqueue).
type Gate interface {
	Plugin
	// Admit says whether the pod may be scheduled at all now.
	Admit(*Pod) *Status
}

// QueueSort orders the pods that wait.
type QueueSort interface {
	Plugin
	// Less reports whether a, in the queue since aSince, goes before b.
	Less(a *Pod, aSince time.Time, b *Pod, bSince time.Time) bool
}

// FilterPlugin says on which nodes a pod may run.
type FilterPlugin interface {
	Plugin
	// PrepareFilter looks once at the pod and the whole cluster.
	PrepareFilter(*Pod, *Snapshot) Prepared
}

// Prepared is what a filter plugin knows about a pod before it looks at single nodes.
//   - Status not nil: the pod is refused everywhere, or (Error) nothing can be said.
//   - Check nil: the plugin has nothing to say; it is left out, in preemption too.
//   - Nodes not nil: only the nodes of these names can pass (possibly none); the others need not be asked.
type Prepared struct {
	Check  Check
	Nodes  []string
	Status *Status
}

// Check says whether the prepared pod fits a node: one of the snapshot it was prepared for, or one made from such by With and Without. It may
// be asked from several goroutines at once.
type Check interface {
	// Filter returns nil if the pod fits, else why not.
	Filter(*Node) *Status
}

// Adjustable is a Check that also looks at other nodes than the one it is asked about. To try what would happen with pods gone or added
// (preemption, nominated pods), clone it and tell it of them; a Check that is not Adjustable only needs the changed Node.
type Adjustable interface {
	Check
	// Clone gives a copy that can be adjusted without touching this one.
	Clone() Adjustable
	// AddPod and RemovePod make the check as if the pod were, or were not, on the node, given as it was before or after. Not safe while
	// Filter runs.
	AddPod(pod *Pod, on *Node)
	RemovePod(pod *Pod, from *Node)
}

// ScorePlugin says which of the nodes a pod may run on would be better.
type ScorePlugin interface {
	Plugin
	// PrepareScore looks once at the pod, the cluster and the nodes that passed the filters. Both nil: nothing to say, every node scores 0.
	PrepareScore(pod *Pod, s *Snapshot, feasible []*Node) (Scorer, *Status)
}

// MaxScore is the best normalized score a plugin gives a node; 0 is the worst.
const MaxScore int64 = 100

// Scorer scores nodes for the prepared pod.
type Scorer interface {
	// Score writes the raw score of nodes[i] to scores[i]. nodes are among the feasible ones of PrepareScore.
	Score(nodes []*Node, scores []int64)
	// Normalize turns the raw scores of all feasible nodes into ones between 0 and MaxScore, in place.
	Normalize(nodes []*Node, scores []int64)
	// Local reports that a raw score depends on the pod and its node alone, so it holds while the *Node is the same.
	Local() bool
}

// WeightedScore is a score plugin and how much its word counts.
type WeightedScore struct {
	ScorePlugin
	Weight int64
}

// Profile is a set of plugins by which the pods of one schedulerName are scheduled. Filters are asked in this order.
type Profile struct {
	SchedulerName string
	Gates         []Gate
	QueueSort     QueueSort
	Filters       []FilterPlugin
	Scores        []WeightedScore
	// PostFilters are the names of what is tried when no node fits (DefaultPreemption), Binders of what binds (DefaultBinder): the scheduler
	// implements them.
	PostFilters []string
	Binders     []string
	// PercentageOfNodesToScore is the profile's own, or nil.
	PercentageOfNodesToScore *int32
}
