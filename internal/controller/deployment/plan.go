package deployment

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
)

// plan is a Deployment and its ReplicaSets as they shall be.
type plan struct {
	observed
	now        time.Time
	deployment *appsv1.Deployment // a copy, to be changed
	new        *set               // of the current template, or nil
	old        []*set             // of others, oldest first
	changed    []*set             // in the order in which they were
	surplus    []*set             // to be deleted
}

// set is a ReplicaSet as it shall be.
type set struct {
	*appsv1.ReplicaSet // as in the cache, or a copy that was changed
	copied             bool
	events             []controller.Action // that tell of its changes
}

func newPlan(o observed, sets []*appsv1.ReplicaSet, now time.Time) *plan {
	p := &plan{observed: o, now: now, deployment: o.seen.DeepCopy()}
	slices.SortFunc(sets, olderFirst)
	for _, rs := range sets {
		s := &set{ReplicaSet: rs}
		if p.new == nil && sameTemplate(&rs.Spec.Template, &o.seen.Spec.Template) {
			p.new = s // should there be several, the oldest
		} else {
			p.old = append(p.old, s)
		}
	}
	return p
}

// olderFirst puts the older ReplicaSet first; the name decides among those of the same second.
func olderFirst(a, b *appsv1.ReplicaSet) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	if a.Name < b.Name {
		return -1
	}
	return 1
}

// replicas is what the Deployment wants.
func (p *plan) replicas() int32 { return ptr.Deref(p.deployment.Spec.Replicas, 1) }

// size is how many replicas a ReplicaSet shall have.
func (s *set) size() int32 { return ptr.Deref(s.Spec.Replicas, 1) }

// all are the ReplicaSets, the new one last.
func (p *plan) all() []*set {
	if p.new == nil {
		return p.old
	}
	return append(slices.Clip(p.old), p.new)
}

// activeOf are those that have, or should have, pods.
func activeOf(sets []*set) []*set {
	return slices.DeleteFunc(slices.Clone(sets), func(s *set) bool { return s.size() == 0 })
}

func sum(sets []*set, of func(*set) int32) (n int32) {
	for _, s := range sets {
		n += of(s)
	}
	return n
}

func (s *set) actual() int32    { return s.Status.Replicas }
func (s *set) ready() int32     { return s.Status.ReadyReplicas }
func (s *set) available() int32 { return s.Status.AvailableReplicas }

// change returns a copy of a ReplicaSet that may be changed, and will be written.
func (p *plan) change(s *set) *appsv1.ReplicaSet {
	if !s.copied {
		s.ReplicaSet, s.copied = s.DeepCopy(), true
		p.changed = append(p.changed, s)
	}
	return s.ReplicaSet
}

// scale gives a ReplicaSet a size, and says whether that is another.
func (p *plan) scale(s *set, size int32) bool {
	from := s.size()
	if from == size {
		return false
	}
	rs := p.change(s)
	rs.Spec.Replicas = &size
	p.noteSize(s)
	direction := "up"
	if size < from {
		direction = "down"
	}
	s.events = append(s.events, p.tellScaled(direction, s.Name, from, size))
	return true
}

func (p *plan) tellScaled(direction, name string, from, to int32) controller.Action {
	return p.tell(corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", direction, name, from, to)
}

// tell makes an event about the Deployment.
func (p *plan) tell(kind, reason, format string, args ...any) controller.Action {
	return controller.Event(p.seen, kind, reason, format, args...)
}

// writes are the ReplicaSets' changes, each told of when it is made.
func (p *plan) writes() []controller.Action {
	var actions []controller.Action
	for _, s := range p.changed {
		actions = append(actions, controller.Update(s.ReplicaSet))
		actions = append(actions, s.events...)
	}
	for _, s := range p.surplus {
		actions = append(actions, controller.Delete(s.ReplicaSet, metav1.DeleteOptions{}))
	}
	return actions
}

// carryOut has the plan written. rolling is whether it is about the progress of a rollout.
func (p *plan) carryOut(rolling bool) controller.Decision {
	actions := p.writes()
	status, again := p.newStatus(rolling)
	p.deployment.Status = status
	if p.differs() {
		actions = append(actions, controller.UpdateStatus(p.deployment))
	}
	return controller.Decision{Actions: actions, Again: again}
}

// differs says whether the Deployment's status, with which its revision is written, is another than was seen.
func (p *plan) differs() bool {
	was, is := p.seen, p.deployment
	return was.Annotations[revisionAnnotation] != is.Annotations[revisionAnnotation] || !equality.Semantic.DeepEqual(was.Status, is.Status)
}
