package volume

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/controller"
)

// byClaim is the name of the index of pods by their claims, shared by all loops.
const byClaim = "spec.volumes.claim"

// PodsOf returns a function that lists the pods with a claim from an informer of pods. The pods must not be modified.
func PodsOf(pods cache.SharedIndexInformer) func(claim controller.Key) []*corev1.Pod {
	if pods.GetIndexer().GetIndexers()[byClaim] == nil {
		if err := pods.AddIndexers(cache.Indexers{byClaim: claimsOf}); err != nil {
			panic(fmt.Sprintf("indexing pods by claim: %v", err)) // only if the informer has stopped
		}
	}
	indexer := pods.GetIndexer()
	return func(claim controller.Key) []*corev1.Pod {
		found, err := indexer.ByIndex(byClaim, claim.String())
		if err != nil {
			return nil // the only error is that the index is missing
		}
		out := make([]*corev1.Pod, len(found))
		for i, pod := range found {
			out[i] = pod.(*corev1.Pod)
		}
		return out
	}
}

func claimsOf(obj any) (names []string, _ error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil
	}
	for i := range pod.Spec.Volumes {
		if name := ClaimName(pod, &pod.Spec.Volumes[i]); name != "" {
			names = append(names, controller.Key{Namespace: pod.Namespace, Name: name}.String())
		}
	}
	return names, nil
}

// ClaimName returns the name of the claim of a pod's volume, or "" if the volume has none.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// HasEnded reports whether a pod uses its volumes no more: it has ended, or is being deleted and none of its containers run.
func HasEnded(pod *corev1.Pod) bool {
	s := &pod.Status
	return s.Phase == corev1.PodFailed || s.Phase == corev1.PodSucceeded ||
		pod.DeletionTimestamp != nil && !runs(s.InitContainerStatuses) && !runs(s.ContainerStatuses) && !runs(s.EphemeralContainerStatuses)
}

func runs(containers []corev1.ContainerStatus) bool {
	return slices.ContainsFunc(containers, func(c corev1.ContainerStatus) bool { return c.State.Terminated == nil && c.State.Waiting == nil })
}
