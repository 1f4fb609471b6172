package disruption

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
)

// members holds the names of the pods that each budget selects, so that a reconcile need not go through all pods of a namespace. A budget's pods are
// listed once for each of its selectors; then changes of pods keep them up to date. They may be behind the caches as keys are: by changes that are
// still to be told of, and which requeue the budget. So a name is not proof that the pod exists and is selected.
type members struct {
	mu      sync.Mutex
	budgets map[controller.Key]*membership
}

// membership is what is known of a version of a budget's spec.
type membership struct {
	uid        types.UID
	generation int64
	pods       map[string]bool
}

// change notes that a pod is now selected by the budgets now, and no longer by those before.
func (m *members) change(pod string, before, now []controller.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range before {
		if known := m.budgets[key]; known != nil {
			delete(known.pods, pod)
		}
	}
	for _, key := range now {
		if known := m.budgets[key]; known != nil {
			known.pods[pod] = true
		}
	}
}

// forget drops a budget that has been deleted.
func (m *members) forget(key controller.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.budgets, key)
}

// names returns the names of the pods of a budget. list lists them from the caches.
func (m *members) names(budget *policyv1.PodDisruptionBudget, list func() []*corev1.Pod) []string {
	key := controller.KeyOf(budget)
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.budgets[key]
	if known == nil || known.uid != budget.UID || known.generation != budget.Generation {
		known = &membership{budget.UID, budget.Generation, map[string]bool{}}
		if m.budgets == nil {
			m.budgets = map[controller.Key]*membership{}
		}
		m.budgets[key] = known // first, so that what changes while pods are listed is noted
		m.mu.Unlock()
		pods := list()
		m.mu.Lock()
		for _, pod := range pods {
			known.pods[pod.Name] = true
		}
	}
	names := make([]string, 0, len(known.pods))
	for name := range known.pods {
		names = append(names, name)
	}
	return names
}
