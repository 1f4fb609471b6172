package daemonset

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

const hashLabel = appsv1.DefaultDaemonSetUniqueLabelKey

// history makes sure that there is exactly one revision of the current template and that it is the latest.
func (s *state) history() controller.Decision {
	var current []*appsv1.ControllerRevision
	var unlabelled []controller.Action
	latest := int64(0)
	for _, r := range s.revisions {
		if r.Labels[hashLabel] == "" {
			r = r.DeepCopy()
			r.Labels = maps.Clone(r.Labels)
			if r.Labels == nil {
				r.Labels = map[string]string{}
			}
			r.Labels[hashLabel] = r.Name
			unlabelled = append(unlabelled, controller.Update(r))
		}
		if bytes.Equal(r.Data.Raw, s.derived.patch) {
			current = append(current, r)
		} else {
			s.old = append(s.old, r)
			latest = max(latest, r.Revision)
		}
	}
	switch {
	case len(unlabelled) > 0:
		return controller.Decision{Actions: unlabelled}
	case len(current) == 0:
		return s.newRevision(latest + 1)
	case len(current) > 1:
		return s.deduplicate(current)
	}
	s.hash = current[0].Labels[hashLabel]
	if current[0].Revision > latest {
		return s.manageAndRoll()
	}
	next := current[0].DeepCopy() // an earlier template is current again
	next.Revision = latest + 1
	return s.after(controller.Update(next))
}

// after goes on if an action succeeds.
func (s *state) after(action controller.Action) controller.Decision {
	return controller.Decision{Actions: []controller.Action{action}, Then: func(err error) controller.Decision {
		if err != nil {
			return controller.Decision{Err: fmt.Errorf("failed to construct revisions of DaemonSet: %w", err)}
		}
		return s.manageAndRoll()
	}}
}

// newRevision creates the revision of the current template.
func (s *state) newRevision(number int64) controller.Decision {
	s.hash = owned.TemplateHash(&s.set.Spec.Template, s.set.Status.CollisionCount)
	labels := maps.Clone(s.set.Spec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[hashLabel] = s.hash
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.set.Namespace, Name: s.set.Name + "-" + s.hash, Labels: labels, Annotations: maps.Clone(s.set.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.set, daemonSetKind)}},
		Data: runtime.RawExtension{Raw: s.derived.patch}, Revision: number,
	}
	switch existing := s.revision(r.Name); {
	case existing == nil:
		return s.after(controller.Create(r))
	case bytes.Equal(existing.Data.Raw, r.Data.Raw):
		return s.manageAndRoll()
	}
	// Another template has the same hash: incrementing collisionCount changes this one's.
	next := s.set.DeepCopy()
	if next.Status.CollisionCount == nil {
		next.Status.CollisionCount = new(int32)
	}
	*next.Status.CollisionCount++
	return controller.Decision{Actions: []controller.Action{controller.UpdateStatus(next)}}
}

// deduplicate keeps the latest of several revisions of the current template, and relabels the pods of the others. The rest follows when the
// caches have observed it.
func (s *state) deduplicate(current []*appsv1.ControllerRevision) controller.Decision {
	keep := slices.MaxFunc(current, func(a, b *appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	var actions []controller.Action
	for _, pod := range s.pods {
		if pod.Labels[hashLabel] != keep.Labels[hashLabel] && slices.ContainsFunc(current, func(r *appsv1.ControllerRevision) bool {
			return r.Labels[hashLabel] == pod.Labels[hashLabel]
		}) {
			actions = append(actions, controller.Patch(pod, "", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, hashLabel, keep.Labels[hashLabel])))
		}
	}
	for _, r := range current {
		if r != keep {
			actions = append(actions, controller.Delete(r, metav1.DeleteOptions{}))
		}
	}
	return controller.Decision{Actions: actions}
}

// cleanUp deletes old revisions beyond revisionHistoryLimit, the oldest first, but none that pods have. Then it updates the status.
func (s *state) cleanUp() controller.Decision {
	limit := 10
	if s.set.Spec.RevisionHistoryLimit != nil {
		limit = int(*s.set.Spec.RevisionHistoryLimit)
	}
	live := map[string]bool{}
	for _, pod := range s.pods {
		live[pod.Labels[hashLabel]] = true
	}
	slices.SortFunc(s.old, func(a, b *appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	var actions []controller.Action
	for _, r := range s.old {
		if len(actions) < len(s.old)-limit && !live[r.Labels[hashLabel]] {
			actions = append(actions, controller.Delete(r, metav1.DeleteOptions{}))
		}
	}
	if len(actions) == 0 {
		return s.report(nil)
	}
	return controller.Decision{Actions: actions, Then: func(err error) controller.Decision {
		if err != nil {
			return controller.Decision{Err: fmt.Errorf("failed to clean up revisions of DaemonSet: %w", err)}
		}
		return s.report(nil)
	}}
}
