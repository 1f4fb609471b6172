package statefulset

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

const (
	// hashLabel is the label of a ControllerRevision with the hash of its content.
	hashLabel = "controller.kubernetes.io/hash"
	// maxRevisionPrefix is how much of a set's name goes into the names of its revisions.
	maxRevisionPrefix = 223
)

// history makes sure that the revision of the template is the latest, and finds the current one.
func (s *state) history() controller.Decision {
	slices.SortFunc(s.revisions, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var latest, equal *appsv1.ControllerRevision
	for _, r := range s.revisions {
		latest = r
		if bytes.Equal(r.Data.Raw, s.derived.patch) {
			equal = r
		}
	}
	switch {
	case latest == nil:
		return s.newRevision(1)
	case equal == latest:
		return s.use(latest)
	case equal != nil: // rolled back
		next := equal.DeepCopy()
		next.Revision = latest.Revision + 1
		return s.after(controller.Update(next), next)
	case s.derived.equal(latest):
		return s.use(latest)
	}
	return s.newRevision(latest.Revision + 1)
}

// newRevision creates the revision of the template.
func (s *state) newRevision(number int64) controller.Decision {
	labels := maps.Clone(s.set.Spec.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[hashLabel] = owned.PatchHash(s.derived.patch, s.collisionCount)
	r := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.set.Namespace, Labels: labels, Annotations: maps.Clone(s.set.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.set, statefulSetKind)}},
		Data: runtime.RawExtension{Raw: s.derived.patch}, Revision: number,
	}
	for {
		r.Name = s.set.Name[:min(len(s.set.Name), maxRevisionPrefix)] + "-" + owned.PatchHash(s.derived.patch, s.collisionCount)
		existing := s.revision(r.Name)
		if existing == nil {
			return s.after(controller.Create(r), r)
		}
		if bytes.Equal(existing.Data.Raw, r.Data.Raw) {
			return s.use(existing)
		}
		s.collisionCount++ // other content has the same hash
	}
}

// after writes the update revision and, if that succeeds, goes on.
func (s *state) after(write controller.Action, update *appsv1.ControllerRevision) controller.Decision {
	if s.set.DeletionTimestamp != nil {
		return controller.Nothing
	}
	return controller.Decision{Actions: []controller.Action{write}, Then: func(err error) controller.Decision {
		if err != nil {
			return controller.Decision{Err: fmt.Errorf("failed to construct revisions of StatefulSet: %w", err)}
		}
		return s.use(update)
	}}
}

// use takes a revision as that of the template, and goes on.
func (s *state) use(update *appsv1.ControllerRevision) controller.Decision {
	s.update, s.current = update, update
	for _, r := range s.revisions {
		if r.Name == s.set.Status.CurrentRevision && r.Name != update.Name {
			s.current = r
		}
	}
	return s.manage()
}

// truncate returns the actions that delete revisions beyond revisionHistoryLimit, the oldest first. Those that are current or that pods are of do
// not count.
func (s *state) truncate() []controller.Action {
	limit := int(ptr.Deref(s.set.Spec.RevisionHistoryLimit, 10))
	if limit < 0 {
		return nil
	}
	live := map[string]bool{s.current.Name: true, s.update.Name: true}
	for _, pod := range s.pods {
		live[revisionOf(pod)] = true
	}
	var old []*appsv1.ControllerRevision
	for _, r := range s.revisions {
		if !live[r.Name] {
			old = append(old, r)
		}
	}
	var actions []controller.Action
	for _, r := range old[:max(len(old)-limit, 0)] {
		actions = append(actions, controller.Delete(r, metav1.DeleteOptions{}))
	}
	return actions
}
