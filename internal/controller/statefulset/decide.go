package statefulset

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// observed holds the state that a decision is made from. Pods and revisions are those that the StatefulSet controls and selects.
type observed struct {
	set       *appsv1.StatefulSet
	derived   *derived
	pods      []*corev1.Pod
	revisions []*appsv1.ControllerRevision
	claim     func(name string) *corev1.PersistentVolumeClaim // returns the claim of that name, or nil
	revision  func(name string) *appsv1.ControllerRevision    // returns the revision of that name, whatever controls it, or nil
}

// state holds what is derived from the observed state, and the decision so far.
type state struct {
	observed
	now            time.Time
	start          int  // the first ordinal
	ordered        bool // podManagementPolicy is OrderedReady
	collisionCount int32

	current, update                 *appsv1.ControllerRevision // the revisions of status.currentRevision and of the template
	currentTemplate, updateTemplate *corev1.PodTemplateSpec

	replicas         []*corev1.Pod // by ordinal, from start on; those without a uid do not exist
	condemned        []*corev1.Pod // pods of other ordinals, the highest first
	firstUnavailable *corev1.Pod   // the pod of the lowest ordinal that is not available, condemned ones last

	actions      []controller.Action
	replaced     int32         // pods of the current revision that the rolling update deletes
	requeueAfter time.Duration // 0: not requeued
}

// decide returns what to do about a StatefulSet.
func decide(o observed, now time.Time) controller.Decision {
	s := &state{observed: o, now: now, start: startOrdinal(o.set), ordered: o.set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement,
		collisionCount: ptr.Deref(o.set.Status.CollisionCount, 0)}
	return s.history()
}

// manage decides about pods and claims, once the history is in order.
func (s *state) manage() controller.Decision {
	if s.set.DeletionTimestamp != nil {
		return s.report(nil) // its pods are deleted or orphaned by the garbage collector
	}
	if err := s.templates(); err != nil {
		return controller.Decision{Err: err}
	}
	s.sortPods()
	if !s.manageReplicas() && !s.manageCondemned() && s.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		if err := s.roll(); err != nil {
			return s.report(err)
		}
	}
	if len(s.actions) == 0 {
		return s.report(nil)
	}
	return controller.Decision{Actions: s.actions, Then: s.report}
}

// templates sets the templates of the current and the update revision.
func (s *state) templates() (err error) {
	if s.updateTemplate, err = s.templateOf(s.update); err != nil {
		return err
	}
	s.currentTemplate, err = s.templateOf(s.current)
	return err
}

func (s *state) templateOf(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	if r == s.update && string(r.Data.Raw) == string(s.derived.patch) {
		return &s.set.Spec.Template, nil
	}
	if r == s.update && s.updateTemplate != nil {
		return s.updateTemplate, nil
	}
	return owned.PatchedTemplate(r.Data.Raw)
}

// sortPods sorts the pods into replicas and condemned, with a pod that has nothing but its name for every ordinal that has none.
func (s *state) sortPods() {
	s.replicas = make([]*corev1.Pod, ptr.Deref(s.set.Spec.Replicas, 1))
	for _, pod := range s.pods {
		if s.inRange(pod) {
			s.replicas[ordinalOf(s.set, pod)-s.start] = pod
		} else {
			s.condemned = append(s.condemned, pod)
		}
	}
	slices.SortFunc(s.condemned, func(a, b *corev1.Pod) int { return cmp.Compare(ordinalOf(s.set, b), ordinalOf(s.set, a)) })
	for i, pod := range s.replicas {
		if pod == nil {
			s.replicas[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName(s.set, s.start+i)}}
		}
		if s.firstUnavailable == nil && s.unavailable(s.replicas[i]) {
			s.firstUnavailable = s.replicas[i]
		}
	}
	for _, pod := range slices.Backward(s.condemned) {
		if s.firstUnavailable == nil && s.unavailable(pod) {
			s.firstUnavailable = pod
		}
	}
}

// inRange reports whether a pod has the ordinal of a replica.
func (s *state) inRange(pod *corev1.Pod) bool {
	ordinal := ordinalOf(s.set, pod)
	return ordinal >= s.start && ordinal < s.start+int(ptr.Deref(s.set.Spec.Replicas, 1))
}

// deletePod returns the action that deletes a pod and says so in an Event.
func (s *state) deletePod(pod *corev1.Pod) controller.Action {
	return s.podAction("Delete", pod, controller.Delete(pod, metav1.DeleteOptions{}))
}
