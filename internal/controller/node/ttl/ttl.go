package ttl

import (
	"encoding/json"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
)

// New returns the loop. Its keys are nodes. When the cluster's size passes a step, nodes are updated at their next change.
func New(deps controller.Deps) controller.Loop {
	nodes := deps.Informers.Core().V1().Nodes()
	find := nodes.Lister()
	var count atomic.Int64
	return controller.Loop{
		Name: "ttl-controller", QueueName: "ttlcontroller",
		Watch: []controller.Watch{{Informer: nodes.Informer(), Type: &corev1.Node{}, Keys: func(before, after metav1.Object) []controller.Key {
			switch {
			case after == nil:
				count.Add(-1)
				return nil
			case before == nil:
				count.Add(1)
			}
			return []controller.Key{controller.KeyOf(after)}
		}}},
		Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			node, err := find.Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			return decide(node, int(count.Load()))
		},
	}
}

// steps holds for how many seconds kubelets may cache objects, by cluster size. They overlap, so that a node that is added and removed does not
// change all the others.
var steps = []struct{ min, max, seconds int }{
	{0, 100, 0}, {90, 500, 15}, {450, 1000, 30}, {900, 2000, 60}, {1800, math.MaxInt, 300},
}

// decide updates the annotation of a node in a cluster of count nodes, unless its value is one of those for that size.
func decide(node *corev1.Node, count int) controller.Decision {
	current, err := strconv.Atoi(node.Annotations[corev1.ObjectTTLAnnotationKey])
	ttl := -1
	for _, s := range steps {
		if s.min <= count && count <= s.max {
			if err == nil && current == s.seconds {
				return controller.Nothing
			}
			if ttl < 0 {
				ttl = s.seconds
			}
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "annotations": map[string]string{corev1.ObjectTTLAnnotationKey: strconv.Itoa(ttl)}}})
	if err != nil {
		return controller.Decision{Err: err}
	}
	return controller.Decision{Actions: []controller.Action{controller.Patch(node, "", types.MergePatchType, patch)}}
}
