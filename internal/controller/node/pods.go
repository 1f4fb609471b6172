package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Account is the service account that all loops about nodes act as.
const Account = "node-controller"

// byNode is the name of the index of pods by node, shared by all loops.
const byNode = "spec.nodeName"

// PodsOn returns a function that lists the pods of a node from an informer of pods. The pods must not be modified.
func PodsOn(pods cache.SharedIndexInformer) func(node string) []*corev1.Pod {
	if pods.GetIndexer().GetIndexers()[byNode] == nil {
		if err := pods.AddIndexers(cache.Indexers{byNode: nodeOf}); err != nil {
			panic(fmt.Sprintf("indexing pods by node: %v", err)) // only if the informer has stopped
		}
	}
	indexer := pods.GetIndexer()
	return func(node string) []*corev1.Pod {
		found, err := indexer.ByIndex(byNode, node)
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

func nodeOf(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}
