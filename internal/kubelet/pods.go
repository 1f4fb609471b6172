package kubelet

import corev1 "k8s.io/api/core/v1"

// Pods are those bound to this node, with the statuses that were worked out last.
func (k *Kubelet) Pods() []*corev1.Pod {
	list, err := k.podLister.List(everything)
	if err != nil {
		return nil // a lister of a cache does not fail
	}
	for i, pod := range list {
		list[i] = k.withStatus(pod)
	}
	return list
}

// Pod is one of them, or nil.
func (k *Kubelet) Pod(namespace, name string) *corev1.Pod {
	pod, err := k.podLister.Pods(namespace).Get(name)
	if err != nil {
		return nil
	}
	return k.withStatus(pod)
}

// withStatus is a pod with the status that the API is about to get.
func (k *Kubelet) withStatus(pod *corev1.Pod) *corev1.Pod {
	select {
	case <-k.synced: // the writer was made before
	default:
		return pod
	}
	s, known := k.writer.Get(pod.UID)
	if !known {
		return pod
	}
	own := *pod
	own.Status = *s
	return &own
}
