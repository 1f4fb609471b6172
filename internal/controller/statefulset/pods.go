package statefulset

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// startOrdinal returns the ordinal of a StatefulSet's first replica.
func startOrdinal(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

// podName returns the name of the pod of an ordinal.
func podName(set *appsv1.StatefulSet, ordinal int) string {
	return set.Name + "-" + strconv.Itoa(ordinal)
}

// ordinalOf returns the ordinal in the name of a StatefulSet's pod, or -1 if it is not the name of a pod of that StatefulSet.
func ordinalOf(set *appsv1.StatefulSet, pod *corev1.Pod) int {
	digits, ok := strings.CutPrefix(pod.Name, set.Name+"-")
	if !ok {
		return -1
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
		return -1
	}
	return int(n)
}

// revisionOf returns the name of the ControllerRevision that a pod is of.
func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }

// exists reports whether a pod has been created.
func exists(pod *corev1.Pod) bool { return pod.UID != "" }

func terminating(pod *corev1.Pod) bool { return pod.DeletionTimestamp != nil }

func runningAndReady(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && owned.Ready(pod)
}

// available reports whether a pod has been ready for minReadySeconds, and if it is ready but not for long enough, how long that takes.
func (s *state) available(pod *corev1.Pod) (is bool, left time.Duration) {
	since, ready := owned.ReadySince(pod)
	minReady := time.Duration(s.set.Spec.MinReadySeconds) * time.Second
	switch {
	case !ready:
		return false, 0
	case minReady == 0:
		return true, 0
	case since.IsZero():
		return false, minReady
	}
	left = since.Add(minReady).Sub(s.now)
	return left <= 0, max(left, 0)
}

// unavailable reports whether a pod is not available or will not be for long, as it is being deleted.
func (s *state) unavailable(pod *corev1.Pod) bool {
	is, _ := s.available(pod)
	return !is || terminating(pod)
}

// newPod returns the pod of a name, of the current revision where the rolling update has not arrived or does not go, else of the update revision.
func (s *state) newPod(name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	template, revision := s.updateTemplate, s.update.Name
	if strategy := s.set.Spec.UpdateStrategy; strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType {
		kept := s.set.Status.CurrentReplicas
		if strategy.RollingUpdate != nil {
			kept = s.partition()
		}
		if ordinalOf(s.set, pod) < s.start+int(kept) {
			template, revision = s.currentTemplate, s.current.Name
		}
	}
	template = template.DeepCopy()
	pod.ObjectMeta = metav1.ObjectMeta{
		Namespace: s.set.Namespace, Name: name, GenerateName: owned.Prefix(s.set.Name), Labels: template.Labels, Annotations: template.Annotations,
		Finalizers: template.Finalizers, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.set, statefulSetKind)},
	}
	pod.Spec = template.Spec
	s.identify(pod)
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revision
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, s.set.Spec.ServiceName
	pod.Spec.Volumes = s.volumes(pod)
	return pod
}

// identify sets the labels that tell a pod from the others of its set.
func (s *state) identify(pod *corev1.Pod) {
	pod.Labels = maps.Clone(pod.Labels)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinalOf(s.set, pod))
}

// volumes returns a pod's volumes with those of the set's claims, which take the place of others of the same name.
func (s *state) volumes(pod *corev1.Pod) []corev1.Volume {
	var volumes []corev1.Volume
	for _, t := range s.claimTemplates() {
		volumes = append(volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: s.claimName(t, pod)}}})
	}
	for _, v := range pod.Spec.Volumes {
		if !slices.ContainsFunc(volumes, func(claimed corev1.Volume) bool { return claimed.Name == v.Name }) {
			volumes = append(volumes, v)
		}
	}
	return volumes
}

// hasVolumes reports whether a pod has the volumes of the set's claims.
func (s *state) hasVolumes(pod *corev1.Pod) bool {
	for _, t := range s.claimTemplates() {
		name := s.claimName(t, pod)
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Name == t.Name && v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == name
		}) {
			return false
		}
	}
	return true
}

// podAction returns an action that carries out actions in order and records with an Event that the verb was done to the pod, or that it failed.
func (s *state) podAction(verb string, pod *corev1.Pod, actions ...controller.Action) controller.Action {
	done := controller.Event(s.set, corev1.EventTypeNormal, "Successful"+verb, "%s Pod %s in StatefulSet %s successful", verb, pod.Name, s.set.Name)
	return controller.Sequence(func(err error) ([]controller.Action, error) {
		if verb == "Create" && apierrors.IsAlreadyExists(err) {
			return nil, err // the caches lag behind, or the name is taken by a pod that is not the set's
		}
		return []controller.Action{controller.Event(s.set, corev1.EventTypeWarning, "Failed"+verb, "%s Pod %s in StatefulSet %s failed error: %v",
			verb, pod.Name, s.set.Name, err)}, err
	}, append(actions, done)...)
}
