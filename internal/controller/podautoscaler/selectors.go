package podautoscaler

import (
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"skiff/internal/controller"
)

// selectors holds the selector that each autoscaler's target had when it was last evaluated, to find autoscalers that have the same pods.
type selectors struct {
	mu         sync.Mutex
	namespaces map[string]*namespaceSelectors
}

type namespaceSelectors struct {
	all map[controller.Key]labels.Selector
	// byLabel has the selectors by a label that they require; by no label those that require none.
	byLabel map[label]map[controller.Key]labels.Selector
}

// first returns a label that a selector requires, by which it is found.
func first(selector labels.Selector) label {
	if all := required(selector); len(all) > 0 {
		return all[0]
	}
	return label{}
}

// put notes the selector of an autoscaler, and returns of how many autoscalers of its namespace the selectors are known.
func (s *selectors) put(key controller.Key, selector labels.Selector) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.namespaces[key.Namespace]
	if in == nil {
		if s.namespaces == nil {
			s.namespaces = map[string]*namespaceSelectors{}
		}
		in = &namespaceSelectors{map[controller.Key]labels.Selector{}, map[label]map[controller.Key]labels.Selector{}}
		s.namespaces[key.Namespace] = in
	}
	if was := in.all[key]; was == nil || was.String() != selector.String() {
		in.remove(key)
		in.all[key] = selector
		under := in.byLabel[first(selector)]
		if under == nil {
			under = map[controller.Key]labels.Selector{}
			in.byLabel[first(selector)] = under
		}
		under[key] = selector
	}
	return len(in.all)
}

// remove drops an autoscaler that has been deleted.
func (s *selectors) remove(key controller.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.namespaces[key.Namespace]; in != nil {
		in.remove(key)
		if len(in.all) == 0 {
			delete(s.namespaces, key.Namespace)
		}
	}
}

func (in *namespaceSelectors) remove(key controller.Key) {
	was := in.all[key]
	if was == nil {
		return
	}
	delete(in.all, key)
	under := in.byLabel[first(was)]
	delete(under, key)
	if len(under) == 0 {
		delete(in.byLabel, first(was))
	}
}

// selecting returns the autoscalers whose selectors select any of the pods, in order, but no more than a limit.
func (s *selectors) selecting(namespace string, pods []*corev1.Pod, limit int) []controller.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.namespaces[namespace]
	if in == nil {
		return nil
	}
	found := map[controller.Key]bool{}
	var last map[string]string
	for _, pod := range pods {
		if last != nil && maps.Equal(last, pod.Labels) {
			continue // as most pods of a target
		}
		last = pod.Labels
		in.selecting(label{}, pod.Labels, found)
		for name, value := range pod.Labels {
			in.selecting(label{name, value}, pod.Labels, found)
		}
		if len(found) >= limit {
			break
		}
	}
	keys := slices.SortedFunc(maps.Keys(found), func(a, b controller.Key) int { return strings.Compare(a.Name, b.Name) })
	return keys[:min(len(keys), limit)]
}

func (in *namespaceSelectors) selecting(under label, podLabels map[string]string, found map[controller.Key]bool) {
	for key, selector := range in.byLabel[under] {
		if selector.Matches(labels.Set(podLabels)) {
			found[key] = true
		}
	}
}
