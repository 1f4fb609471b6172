package deployment

import (
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/controller"
)

const (
	// revisionAnnotation holds the revision of a ReplicaSet's template, and on a Deployment that of its current one.
	revisionAnnotation = "deployment.kubernetes.io/revision"
	// historyAnnotation lists the former revisions of a ReplicaSet that was rolled back to.
	historyAnnotation = "deployment.kubernetes.io/revision-history"
)

// revision returns a ReplicaSet's revision, 0 if it has none. It returns false if the annotation is not a number.
func (s *set) revision() (int64, bool) {
	text, ok := s.Annotations[revisionAnnotation]
	if !ok {
		return 0, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// nextRevision returns one more than the highest revision of the old ReplicaSets.
func (p *plan) nextRevision() int64 {
	last := int64(0)
	for _, s := range p.old {
		if n, ok := s.revision(); ok {
			last = max(last, n)
		}
	}
	return last + 1
}

// cleanUp deletes the oldest ReplicaSets beyond revisionHistoryLimit that have no replicas.
func (p *plan) cleanUp() {
	limit := p.deployment.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return
	}
	alive := slices.DeleteFunc(slices.Clone(p.old), func(s *set) bool { return s.DeletionTimestamp != nil })
	slices.SortStableFunc(alive, func(a, b *set) int {
		ra, okA := a.revision()
		rb, okB := b.revision()
		switch {
		case !okA || !okB || ra == rb:
			return olderFirst(a.ReplicaSet, b.ReplicaSet)
		case ra < rb:
			return -1
		}
		return 1
	})
	for _, s := range alive[:max(len(alive)-int(*limit), 0)] {
		if s.actual() == 0 && s.size() == 0 && s.Generation <= s.Status.ObservedGeneration {
			p.surplus = append(p.surplus, s)
		}
	}
}

// rollbackTo returns the revision that the deprecated rollback annotation asks for, if it is set. 0 means the last revision before the current.
func rollbackTo(d *appsv1.Deployment) (int64, bool) {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedRollbackTo], 10, 64)
	return n, err == nil
}

// rollBack gives the Deployment the template of a former revision. The next reconcile rolls it out.
func (p *plan) rollBack(to int64) controller.Decision {
	var event controller.Action
	target := p.target(to)
	switch d := p.deployment; {
	case target == nil && to == 0:
		event = p.event(corev1.EventTypeWarning, "DeploymentRollbackRevisionNotFound", "Unable to find last revision.")
	case target == nil:
		event = p.event(corev1.EventTypeWarning, "DeploymentRollbackRevisionNotFound", "Unable to find the revision to rollback to.")
	case sameTemplate(&target.Spec.Template, &d.Spec.Template):
		event = p.event(corev1.EventTypeWarning, "DeploymentRollbackTemplateUnchanged", "The rollback revision contains the same template as current deployment %q", d.Name)
	default:
		n, _ := target.revision()
		event = p.event(corev1.EventTypeNormal, "DeploymentRollback", "Rolled back deployment %q to revision %d", d.Name, n)
		d.Spec.Template = *target.Spec.Template.DeepCopy()
		delete(d.Spec.Template.Labels, hashLabel)
		p.restoreAnnotations(target)
	}
	delete(p.deployment.Annotations, appsv1.DeprecatedRollbackTo)
	return controller.Decision{Actions: append(p.writes(), controller.Update(p.deployment), event)}
}

// target returns the ReplicaSet of a revision, or nil.
func (p *plan) target(revision int64) *set {
	if revision == 0 {
		last := int64(0)
		for _, s := range p.all() {
			if n, ok := s.revision(); ok && n >= last {
				revision, last = last, n
			} else if ok {
				revision = max(revision, n)
			}
		}
	}
	for _, s := range p.all() {
		if n, ok := s.revision(); ok && n == revision && revision != 0 {
			return s
		}
	}
	return nil
}

// restoreAnnotations gives the Deployment the annotations that it had at a revision: the ReplicaSet has a copy, which would be overwritten.
func (p *plan) restoreAnnotations(from *set) {
	d := p.deployment
	for k := range d.Annotations {
		if !notCopied[k] {
			delete(d.Annotations, k)
		}
	}
	for k, v := range from.Annotations {
		if !notCopied[k] {
			annotate(&d.ObjectMeta, k, v)
		}
	}
}
