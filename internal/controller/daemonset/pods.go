package daemonset

import (
	"maps"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller/owned"
)

// available reports whether a pod has been ready for minReadySeconds. If it is ready but not for long enough, the set is requeued for then.
func (s *state) available(pod *corev1.Pod) bool {
	if !owned.Ready(pod) {
		return false
	}
	minReady := time.Duration(s.set.Spec.MinReadySeconds) * time.Second
	since := owned.ReadyCondition(pod).LastTransitionTime
	if minReady == 0 {
		return true
	}
	if since.IsZero() {
		return false
	}
	left := since.Add(minReady).Sub(s.now)
	if left > 0 {
		s.requeue(left)
	}
	return left <= 0
}

// updated reports whether a pod is of the current template. Pods from before templates had hashes are compared by template generation.
func (s *state) updated(pod *corev1.Pod) bool {
	return s.hash != "" && pod.Labels[hashLabel] == s.hash || s.generation != "" && pod.Labels[generationLabel] == s.generation
}

// generationLabel is the pod label with the template generation.
const generationLabel = "pod-template-generation"

// templateGeneration returns the deprecated template generation annotation, empty if it is not a number.
func templateGeneration(set *appsv1.DaemonSet) string {
	n, err := strconv.ParseInt(set.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// nodeOf returns the node that a pod is bound to or created for, or "".
func nodeOf(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn {
				if len(field.Values) != 1 {
					return ""
				}
				return field.Values[0]
			}
		}
	}
	return ""
}

// newPod returns a pod for a node.
func (s *state) newPod(node string) *corev1.Pod {
	template := withTolerations(&s.set.Spec.Template)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.set.Namespace, GenerateName: owned.Prefix(s.set.Name), Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
			Finalizers: template.Finalizers, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.set, daemonSetKind)},
		},
		Spec: template.Spec,
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	if s.generation != "" {
		pod.Labels[generationLabel] = s.generation
	}
	pod.Labels[hashLabel] = s.hash
	pod.Spec.Affinity = requireNode(pod.Spec.Affinity, node)
	pod.Name = owned.Name(s.set, pod.GenerateName, node, s.taken)
	return pod
}

// requireNode makes an affinity require a node, instead of what it required before, which the node is known to fulfil.
func requireNode(a *corev1.Affinity, node string) *corev1.Affinity {
	if a == nil {
		a = &corev1.Affinity{}
	}
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{}
	}
	a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}
	return a
}

// withTolerations returns a copy of a template with the tolerations that every daemon pod has: daemons are often needed on nodes with problems.
func withTolerations(template *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	template = template.DeepCopy()
	spec := &template.Spec
	tolerate(spec, corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	tolerate(spec, corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	tolerate(spec, corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	tolerate(spec, corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	tolerate(spec, corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	tolerate(spec, corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if spec.HostNetwork {
		tolerate(spec, corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
	return template
}

// tolerate adds a toleration, in place of one for the same taint that has a limit.
func tolerate(spec *corev1.PodSpec, key string, effect corev1.TaintEffect) {
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
	for i := range spec.Tolerations {
		if t.MatchToleration(&spec.Tolerations[i]) {
			spec.Tolerations[i] = t
			return
		}
	}
	spec.Tolerations = append(spec.Tolerations, t)
}
