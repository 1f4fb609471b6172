package podautoscaler

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	corelisters "k8s.io/client-go/listers/core/v1"
)

const (
	// An index of a namespace's pods is used for as long as indexFor, but for targets that have no pod in it only for as long as emptyFor.
	indexFor = time.Second
	emptyFor = 100 * time.Millisecond
	// maxIndexes bounds the namespaces whose pods are indexed.
	maxIndexes = 1000
)

// podFinder finds the pods that selectors select. It indexes the pods of a namespace by label for the autoscalers that are evaluated at the same time, so
// that they do not go through all of them one after the other.
type podFinder struct {
	pods corelisters.PodLister

	mu      sync.Mutex
	indexes map[string]*podIndex // by namespace
}

type label struct{ name, value string }

// podIndex holds the pods of a namespace as they were at a time.
type podIndex struct {
	at      time.Time
	all     []*corev1.Pod
	byLabel map[label][]*corev1.Pod
}

// find returns the pods of a namespace that a selector selects, and how many pods the namespace has.
func (f *podFinder) find(namespace string, selector labels.Selector, now time.Time) (pods []*corev1.Pod, of int) {
	index := f.index(namespace, now, indexFor)
	if pods = index.selected(selector); len(pods) == 0 {
		index = f.index(namespace, now, emptyFor)
		pods = index.selected(selector)
	}
	return pods, len(index.all)
}

// index returns an index that is no older than maxAge.
func (f *podFinder) index(namespace string, now time.Time, maxAge time.Duration) *podIndex {
	f.mu.Lock()
	defer f.mu.Unlock()
	if index := f.indexes[namespace]; index != nil && now.Sub(index.at) < maxAge {
		return index
	}
	all, _ := f.pods.Pods(namespace).List(labels.Everything()) // a cache does not fail
	index := &podIndex{at: now, all: all, byLabel: map[label][]*corev1.Pod{}}
	for _, pod := range all {
		for name, value := range pod.Labels {
			index.byLabel[label{name, value}] = append(index.byLabel[label{name, value}], pod)
		}
	}
	for other, old := range f.indexes {
		if now.Sub(old.at) >= indexFor {
			delete(f.indexes, other) // it holds pods that may have gone
		}
	}
	if f.indexes == nil || len(f.indexes) >= maxIndexes {
		f.indexes = map[string]*podIndex{}
	}
	f.indexes[namespace] = index
	return index
}

func (i *podIndex) selected(selector labels.Selector) (pods []*corev1.Pod) {
	among := i.all
	for _, l := range required(selector) {
		if with := i.byLabel[l]; len(with) < len(among) {
			among = with
		}
	}
	for _, pod := range among {
		if selector.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	return pods
}

// required returns the labels that whatever a selector selects has.
func required(selector labels.Selector) (all []label) {
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.Values(); values.Len() == 1 {
				value, _ := values.PopAny()
				all = append(all, label{r.Key(), value})
			}
		}
	}
	return all
}
