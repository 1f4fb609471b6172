package replicaset

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/controller"
)

// A namespace may hold thousands of pods that nobody controls, and hundreds of sets: neither may a look at a set go through all those pods,
// nor a new pod through all those sets. Both are indexed by single labels, which a selector and a pod must have in common.
const (
	orphanIndex   = "replicaset.orphans"   // pods that nobody controls by each label, and under anyLabel
	selectorIndex = "replicaset.selectors" // sets by one label that they require, or under anyLabel if they require none
	anyLabel      = ""
)

func indexKey(namespace, label string) string { return namespace + "/" + label }
func labelPair(key, value string) string      { return key + "=" + value }

// addIndex gives an informer an index, unless the loop of the other kind already has.
func addIndex(informer cache.SharedIndexInformer, name string, index cache.IndexFunc) {
	if informer.GetIndexer().GetIndexers()[name] != nil {
		return
	}
	if err := informer.AddIndexers(cache.Indexers{name: index}); err != nil {
		panic(fmt.Sprintf("indexing %s: %v", name, err)) // loops are made before informers stop
	}
}

func indexOrphans(pods cache.SharedIndexInformer) {
	addIndex(pods, orphanIndex, func(obj any) ([]string, error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.DeletionTimestamp != nil || metav1.GetControllerOfNoCopy(pod) != nil {
			return nil, nil
		}
		keys := []string{indexKey(pod.Namespace, anyLabel)}
		for k, v := range pod.Labels {
			keys = append(keys, indexKey(pod.Namespace, labelPair(k, v)))
		}
		return keys, nil
	})
}

// orphans are the pods that nobody controls and a selector selects.
func orphans(pods cache.Indexer, namespace string, selector labels.Selector) []*corev1.Pod {
	found, err := pods.ByIndex(orphanIndex, indexKey(namespace, required(selector)))
	if err != nil {
		return nil // there is such an index
	}
	var out []*corev1.Pod
	for _, obj := range found {
		if pod := obj.(*corev1.Pod); selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, pod)
		}
	}
	return out
}

// required is a label that everything has that a selector selects. The ReplicaSets of a Deployment have one that tells them apart.
func required(selector labels.Selector) string {
	requirements, _ := selector.Requirements()
	pair := anyLabel
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.ValuesUnsorted(); len(values) == 1 {
				pair = labelPair(r.Key(), values[0])
				if r.Key() == appsv1.DefaultDeploymentUniqueLabelKey {
					return pair
				}
			}
		}
	}
	return pair
}

func indexSelectors(sets cache.SharedIndexInformer, from func(any) (set, bool)) {
	addIndex(sets, selectorIndex, func(obj any) ([]string, error) {
		s, ok := from(obj)
		if !ok {
			return nil, nil
		}
		return []string{indexKey(s.GetNamespace(), required(s.selector))}, nil
	})
}

// selecting are the sets that select a pod.
func (l *loop) selecting(pod metav1.Object) []controller.Key {
	values := []string{indexKey(pod.GetNamespace(), anyLabel)}
	for k, v := range pod.GetLabels() {
		values = append(values, indexKey(pod.GetNamespace(), labelPair(k, v)))
	}
	var keys []controller.Key
	for _, value := range values {
		found, err := l.sets.GetIndexer().ByIndex(selectorIndex, value)
		if err != nil {
			return nil // there is such an index
		}
		for _, obj := range found {
			if s, ok := l.from(obj); ok && s.selector.Matches(labels.Set(pod.GetLabels())) {
				keys = append(keys, controller.KeyOf(s))
			}
		}
	}
	return keys
}
