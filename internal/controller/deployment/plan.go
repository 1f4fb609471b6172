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

// plan holds a Deployment and its ReplicaSets as they should be.
type plan struct {
	observed
	now        time.Time
	deployment *appsv1.Deployment // a copy that is changed
	new        *set               // the ReplicaSet of the current template, or nil
	old        []*set             // ReplicaSets of other templates, oldest first
	changed    []*set             // ReplicaSets to update, in the order of their first change
	surplus    []*set             // ReplicaSets to delete
}

// set is a ReplicaSet as it should be.
type set struct {
	*appsv1.ReplicaSet // as in the cache, or a copy if isCopy
	isCopy             bool
	events             []controller.Action // Events about its changes
}

func newPlan(o observed, sets []*appsv1.ReplicaSet, now time.Time) *plan {
	p := &plan{observed: o, now: now, deployment: o.seen.DeepCopy()}
	slices.SortFunc(sets, olderFirst)
	for _, rs := range sets {
		s := &set{ReplicaSet: rs}
		if p.new == nil && sameTemplate(&rs.Spec.Template, &o.seen.Spec.Template) {
			p.new = s // the oldest if there are several
		} else {
			p.old = append(p.old, s)
		}
	}
	return p
}

// olderFirst sorts the older ReplicaSet first; among those created in the same second, the name decides.
func olderFirst(a, b *appsv1.ReplicaSet) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	if a.Name < b.Name {
		return -1
	}
	return 1
}

// replicas returns the Deployment's spec.replicas.
func (p *plan) replicas() int32 { return ptr.Deref(p.deployment.Spec.Replicas, 1) }

// size returns a ReplicaSet's spec.replicas.
func (s *set) size() int32 { return ptr.Deref(s.Spec.Replicas, 1) }

// all returns the ReplicaSets, the new one last.
func (p *plan) all() []*set {
	if p.new == nil {
		return p.old
	}
	return append(slices.Clip(p.old), p.new)
}

// activeOf returns the sets that should have pods.
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

// change returns a copy of a ReplicaSet that may be modified and will be written.
func (p *plan) change(s *set) *appsv1.ReplicaSet {
	if !s.isCopy {
		s.ReplicaSet, s.isCopy = s.DeepCopy(), true
		p.changed = append(p.changed, s)
	}
	return s.ReplicaSet
}

// scale sets a ReplicaSet's replicas, and reports whether that is a change.
func (p *plan) scale(s *set, size int32) bool {
	from := s.size()
	if from == size {
		return false
	}
	rs := p.change(s)
	rs.Spec.Replicas = &size
	p.annotateSize(s)
	direction := "up"
	if size < from {
		direction = "down"
	}
	s.events = append(s.events, p.scaledEvent(direction, s.Name, from, size))
	return true
}

func (p *plan) scaledEvent(direction, name string, from, to int32) controller.Action {
	return p.event(corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled %s replica set %s from %d to %d", direction, name, from, to)
}

// event returns an Event about the Deployment.
func (p *plan) event(kind, reason, format string, args ...any) controller.Action {
	return controller.Event(p.seen, kind, reason, format, args...)
}

// writes returns the updates and deletions of ReplicaSets, each update followed by its Events.
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

// carryOut writes the plan. rolling reports whether a rollout's progress is to be tracked.
func (p *plan) carryOut(rolling bool) controller.Decision {
	actions := p.writes()
	status, requeueAfter := p.newStatus(rolling)
	p.deployment.Status = status
	if p.statusChanged() {
		actions = append(actions, controller.UpdateStatus(p.deployment))
	}
	return controller.Decision{Actions: actions, RequeueAfter: requeueAfter}
}

// statusChanged reports whether the Deployment's status, or its revision, which is written with the status, differs from what was observed.
func (p *plan) statusChanged() bool {
	was, is := p.seen, p.deployment
	return was.Annotations[revisionAnnotation] != is.Annotations[revisionAnnotation] || !equality.Semantic.DeepEqual(was.Status, is.Status)
}
