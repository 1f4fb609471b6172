package pod

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bind binds a pod to the node of a binding, or returns why that is not possible. The binding's annotations and labels override the pod's.
// Nothing else is done to a pod that is bound: the changes need no validation.
func Bind(p *corev1.Pod, b *corev1.Binding, now time.Time) error {
	switch {
	case p.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", p.Name)
	case p.Spec.NodeName != "":
		return fmt.Errorf("pod %v is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		return fmt.Errorf("pod %v has non-empty .spec.schedulingGates", p.Name)
	}
	p.Spec.NodeName = b.Target.Name
	p.Status.NominatedNodeName = ""
	p.Annotations = merged(p.Annotations, b.Annotations)
	dropFormerAnnotations(p.Annotations)
	p.Labels = merged(p.Labels, b.Labels)
	SetCondition(&p.Status, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, now)
	return nil
}

func merged(into, from map[string]string) map[string]string {
	if into == nil && len(from) > 0 {
		into = make(map[string]string, len(from))
	}
	for key, value := range from {
		into[key] = value
	}
	return into
}

// SetCondition adds a condition or replaces the one of its type. Its lastTransitionTime is now, unless the status does not change.
func SetCondition(s *corev1.PodStatus, c corev1.PodCondition, now time.Time) {
	c.LastTransitionTime = metav1.NewTime(now)
	for i := range s.Conditions {
		old := &s.Conditions[i]
		if old.Type != c.Type {
			continue
		}
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		*old = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}
