package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Account is the service account that all loops about nodes act as.
const Account = "node-controller"

// byNode is the name of the index of pods by their node, the same for every loop that shares the informer.
const byNode = "spec.nodeName"

// PodsOn returns a function that finds the pods of a node in an informer of pods. Nobody may change them.
func PodsOn(pods cache.SharedIndexInformer) func(node string) []*corev1.Pod {
	if pods.GetIndexer().GetIndexers()[byNode] == nil {
		if err := pods.AddIndexers(cache.Indexers{byNode: nodeOf}); err != nil {
			panic(fmt.Sprintf("indexing pods by node: %v", err)) // only if the informer has ended
		}
	}
	indexer := pods.GetIndexer()
	return func(node string) []*corev1.Pod {
		found, err := indexer.ByIndex(byNode, node)
		if err != nil {
			return nil // there is no other error than that the index is missing
		}
		out := make([]*corev1.Pod, len(found))
		for i, pod := range found {
			out[i] = pod.(*corev1.Pod)
		}
		return out
	}
}

func nodeOf(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}
