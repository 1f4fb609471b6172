package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// workloads finds the Services and controllers of a pod, so that their pods are spread.
type workloads struct {
	services               corelisters.ServiceLister
	replicationControllers corelisters.ReplicationControllerLister
	replicaSets            appslisters.ReplicaSetLister
	statefulSets           appslisters.StatefulSetLister
}

func newWorkloads(f informers.SharedInformerFactory) *workloads {
	return &workloads{f.Core().V1().Services().Lister(), f.Core().V1().ReplicationControllers().Lister(),
		f.Apps().V1().ReplicaSets().Lister(), f.Apps().V1().StatefulSets().Lister()}
}

// DefaultSelector returns a selector of the pods of the Services that select the pod, and of its controller.
func (w *workloads) DefaultSelector(pod *corev1.Pod) labels.Selector {
	set := labels.Set{}
	services, err := w.services.Services(pod.Namespace).List(labels.Everything())
	if err == nil {
		for _, s := range services {
			// A Service without a selector selects nothing.
			if s.Spec.Selector != nil && labels.SelectorFromValidatedSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)) {
				set = labels.Merge(set, s.Spec.Selector)
			}
		}
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return set.AsSelector()
	}
	var own *metav1.LabelSelector
	switch owner.APIVersion + " " + owner.Kind {
	case "v1 ReplicationController":
		if rc, err := w.replicationControllers.ReplicationControllers(pod.Namespace).Get(owner.Name); err == nil {
			set = labels.Merge(set, rc.Spec.Selector)
		}
	case "apps/v1 ReplicaSet":
		if rs, err := w.replicaSets.ReplicaSets(pod.Namespace).Get(owner.Name); err == nil {
			own = rs.Spec.Selector
		}
	case "apps/v1 StatefulSet":
		if ss, err := w.statefulSets.StatefulSets(pod.Namespace).Get(owner.Name); err == nil {
			own = ss.Spec.Selector
		}
	}
	selector := set.AsSelector()
	if other, err := metav1.LabelSelectorAsSelector(own); own != nil && err == nil {
		if more, selectable := other.Requirements(); selectable {
			selector = selector.Add(more...)
		}
	}
	return selector
}
