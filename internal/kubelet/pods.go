package kubelet

import corev1 "k8s.io/api/core/v1"

// Pods returns the pods bound to this node, with the statuses that were computed last.
func (k *Kubelet) Pods() []*corev1.Pod {
	list, err := k.podLister.List(everything)
	if err != nil {
		return nil // listing from a cache does not fail
	}
	for i, pod := range list {
		list[i] = k.withStatus(pod)
	}
	return list
}

// Pod returns a pod bound to this node, with the status that was computed last; nil if there is none.
func (k *Kubelet) Pod(namespace, name string) *corev1.Pod {
	pod, err := k.podLister.Pods(namespace).Get(name)
	if err != nil {
		return nil
	}
	return k.withStatus(pod)
}

// withStatus returns a pod with the status that was computed last, which the API may not have yet.
func (k *Kubelet) withStatus(pod *corev1.Pod) *corev1.Pod {
	select {
	case <-k.synced: // the writer exists since before that
	default:
		return pod
	}
	s, known := k.writer.Get(pod.UID)
	if !known {
		return pod
	}
	updated := *pod
	updated.Status = *s
	return &updated
}
