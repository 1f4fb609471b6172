package scheduling

import (
	"strings"
	"time"
)

// Code is a plugin's verdict on a pod, or on a pod on a node.
type Code int

const (
	Success                      Code = iota // fits; a nil *Status means the same
	Error                                    // the plugin failed
	Unschedulable                            // does not fit; would if other pods were evicted, so preemption may help
	UnschedulableAndUnresolvable             // does not fit, whatever pods are evicted
)

func (c Code) String() string {
	return [...]string{"Success", "Error", "Unschedulable", "UnschedulableAndUnresolvable"}[c]
}

// Status is a plugin's verdict with its reasons. Statuses are shared and never changed; nil is success.
type Status struct {
	Code    Code
	Plugin  string
	Reasons []string // as in Events: "Insufficient cpu"
	Err     error    // set with Error
}

// OK reports whether the pod passed.
func (s *Status) OK() bool { return s == nil || s.Code == Success }

// Rejected reports whether the pod was refused, as opposed to passing or failing with an error.
func (s *Status) Rejected() bool {
	return s != nil && (s.Code == Unschedulable || s.Code == UnschedulableAndUnresolvable)
}

// Message returns the reasons in one line.
func (s *Status) Message() string {
	if s == nil {
		return ""
	}
	return strings.Join(s.Reasons, ", ")
}

// Plugin is one rule of scheduling, created with its arguments. It holds no state of the cluster.
type Plugin interface {
	Name() string
	// EventsToRegister returns the events that may make a pod schedulable that this plugin refused. No other event changes its verdict.
	EventsToRegister() []EventWithHint
}

// PreEnqueuePlugin is a plugin that gates pods out of the active queue.
type PreEnqueuePlugin interface {
	Plugin
	// PreEnqueue returns nil if the pod may be scheduled now.
	PreEnqueue(*Pod) *Status
}

// QueueSort orders the active queue.
type QueueSort interface {
	Plugin
	// Less reports whether a, in the queue since aSince, is scheduled before b.
	Less(a *Pod, aSince time.Time, b *Pod, bSince time.Time) bool
}

// FilterPlugin decides on which nodes a pod may run.
type FilterPlugin interface {
	Plugin
	// PreFilter is called once per pod with the whole cluster.
	PreFilter(*Pod, *Snapshot) PreFilterResult
}

// PreFilterResult is what a filter plugin decides about a pod before it is called for single nodes.
//   - Status not nil: the pod is refused on all nodes, or (Error) the plugin failed.
//   - Check nil: the plugin does not apply to the pod; it is skipped, in preemption too.
//   - Nodes not nil: only the nodes of these names can pass (possibly none); the others need not be checked.
type PreFilterResult struct {
	Check  Check
	Nodes  []string
	Status *Status
	// Uncached is set if the check reads more than the pod and the node it is called with, such as the pod's claims: its results are not cached.
	Uncached bool
}

// Check decides whether the pod fits a node: one of the snapshot of PreFilter, or one made from such by With and Without. It may be called from several
// goroutines at once.
type Check interface {
	// Filter returns nil if the pod fits, otherwise why not.
	Filter(*Node) *Status
}

// Adjustable is a Check that also depends on other nodes than the one it is called for. To try what would happen with pods removed or added (preemption,
// nominated pods), clone it and call AddPod and RemovePod, as upstream's PreFilterExtensions; a Check that is not Adjustable needs only the changed Node.
type Adjustable interface {
	Check
	// Clone returns a copy that can be adjusted without changing this one.
	Clone() Adjustable
	// AddPod and RemovePod change the check as if the pod were, or were not, on the node, given as it was before or after. They must not be called while
	// Filter runs.
	AddPod(pod *Pod, on *Node)
	RemovePod(pod *Pod, from *Node)
}

// Reserver is a Check of a plugin that has something to do before the pod can be bound to the node that was chosen for it, such as binding volumes.
type Reserver interface {
	Check
	// Reserve returns what is to be done for the pod on the node, nil if nothing. It only decides: package scheduler does it, in these steps, as
	// kube-scheduler's Reserve and PreBind: at once the following cycles see what is reserved (Storage has it), then, beside them, it is written through
	// the API, and the pod is bound when that has taken effect. If anything fails, what is reserved is dropped and the pod is tried again.
	Reserve(*Node) (Reservation, error)
}

// Reservation is what a plugin has decided to do for a pod before it is bound.
type Reservation interface {
	// Plugin returns the name of the plugin.
	Plugin() string
}

// Releaser is a Check of a plugin that can release something which nobody uses, when the pod fits on no node: preemption comes after that.
type Releaser interface {
	Check
	// Release returns what to release; nil if nothing.
	Release(nodes []*Node) *ClaimRelease
}

// ScorePlugin decides which of the feasible nodes is best.
type ScorePlugin interface {
	Plugin
	// PreScore is called once per pod with the cluster and the feasible nodes. Both results nil: the plugin does not apply, every node scores 0.
	PreScore(pod *Pod, s *Snapshot, feasible []*Node) (Scorer, *Status)
}

// MaxScore is the best normalized score of a node; 0 is the worst.
const MaxScore int64 = 100

// Scorer scores nodes for the pod of PreScore.
type Scorer interface {
	// Score writes the raw score of nodes[i] to scores[i]. nodes are among the feasible ones of PreScore.
	Score(nodes []*Node, scores []int64)
	// Normalize turns the raw scores of all feasible nodes into ones between 0 and MaxScore, in place.
	Normalize(nodes []*Node, scores []int64)
	// Local reports whether a raw score depends only on the pod and its node, so that it is valid while the *Node is the same.
	Local() bool
}

// WeightedScore is a score plugin with its weight.
type WeightedScore struct {
	ScorePlugin
	Weight int64
}

// Profile holds the plugins that the pods of one schedulerName are scheduled with. Filters are called in this order.
type Profile struct {
	SchedulerName string
	PreEnqueues   []PreEnqueuePlugin
	QueueSort     QueueSort
	Filters       []FilterPlugin
	Scores        []WeightedScore
	// PostFilters holds the names of plugins for when no node fits (DefaultPreemption), Binders of those that bind (DefaultBinder): package scheduler
	// implements them.
	PostFilters []string
	Binders     []string
	// PercentageOfNodesToScore is the profile's setting, or nil.
	PercentageOfNodesToScore *int32
}
