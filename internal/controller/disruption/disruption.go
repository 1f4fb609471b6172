package disruption

import (
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// podPrefix tells the keys of pods from those of budgets.
const podPrefix = "pods/"

// loop reads the caches.
type loop struct {
	budgets      policylisters.PodDisruptionBudgetLister
	byLabel      cache.Indexer // of budgets, with labelIndex
	pods         corelisters.PodLister
	members      members
	controllers  corelisters.ReplicationControllerLister
	sets         appslisters.ReplicaSetLister
	deployments  appslisters.DeploymentLister
	statefulSets appslisters.StatefulSetLister
	// readScale returns an action that reads the scale of a controller from the API.
	readScale func(*scaleQuery) controller.Action
}

// New returns the loop. Its keys are PodDisruptionBudgets, and pods.
func New(deps controller.Deps) controller.Loop { return newLoop(deps).declaration(deps) }

func newLoop(deps controller.Deps) *loop {
	core, apps, budgets := deps.Informers.Core().V1(), deps.Informers.Apps().V1(), deps.Informers.Policy().V1().PodDisruptionBudgets()
	indexByLabel(budgets.Informer())
	return &loop{budgets: budgets.Lister(), byLabel: budgets.Informer().GetIndexer(), pods: core.Pods().Lister(), controllers: core.ReplicationControllers().Lister(),
		sets: apps.ReplicaSets().Lister(), deployments: apps.Deployments().Lister(), statefulSets: apps.StatefulSets().Lister(), readScale: (&scaleReader{}).action}
}

func (l *loop) declaration(deps controller.Deps) controller.Loop {
	core, apps := deps.Informers.Core().V1(), deps.Informers.Apps().V1()
	return controller.Loop{Name: "disruption-controller", EventSource: "controllermanager", QueueName: "disruption", Reconcile: l.reconcile,
		Watch: []controller.Watch{
			{Informer: deps.Informers.Policy().V1().PodDisruptionBudgets().Informer(), Type: &policyv1.PodDisruptionBudget{}},
			{Informer: core.Pods().Informer(), Type: &corev1.Pod{}, Keys: l.podKeys},
			{Informer: core.ReplicationControllers().Informer(), Type: &corev1.ReplicationController{}, Keys: scaled(l, func(rc *corev1.ReplicationController) (*int32, map[string]string) {
				return rc.Spec.Replicas, rc.Spec.Selector
			})},
			{Informer: apps.ReplicaSets().Informer(), Type: &appsv1.ReplicaSet{}, Keys: scaled(l, func(rs *appsv1.ReplicaSet) (*int32, map[string]string) {
				return rs.Spec.Replicas, rs.Spec.Template.Labels
			})},
			{Informer: apps.Deployments().Informer(), Type: &appsv1.Deployment{}, Keys: scaled(l, func(d *appsv1.Deployment) (*int32, map[string]string) {
				return d.Spec.Replicas, d.Spec.Template.Labels
			})},
			{Informer: apps.StatefulSets().Informer(), Type: &appsv1.StatefulSet{}, Keys: scaled(l, func(s *appsv1.StatefulSet) (*int32, map[string]string) {
				return s.Spec.Replicas, s.Spec.Template.Labels
			})},
		}}
}

func (l *loop) reconcile(key controller.Key, now time.Time) controller.Decision {
	if name, ok := strings.CutPrefix(key.Name, podPrefix); ok {
		pod, err := l.pods.Pods(key.Namespace).Get(name)
		if err != nil {
			return controller.Nothing // it has been deleted
		}
		return decidePod(pod, l.selecting(pod), now)
	}
	budget, err := l.budgets.PodDisruptionBudgets(key.Namespace).Get(key.Name)
	if err != nil {
		l.members.forget(key)
		return controller.Nothing // it has been deleted
	}
	seen := l.observe(budget)
	queries := seen.unknownScales()
	if len(queries) == 0 {
		return decide(seen, now)
	}
	read := make([]controller.Action, len(queries))
	for i, q := range queries {
		read[i] = l.readScale(q)
	}
	return controller.Decision{Actions: []controller.Action{controller.Parallel(parallelReads, read...)}, Then: func(error) controller.Decision { return decide(seen, now) }}
}

// observe returns the state that a decision about a budget is made from.
func (l *loop) observe(budget *policyv1.PodDisruptionBudget) observed {
	seen := observed{budget: budget, cached: l.cachedScale, queries: map[types.UID]*scaleQuery{}}
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		seen.selectorErr = err
		return seen
	}
	pods := l.pods.Pods(budget.Namespace)
	names := l.members.names(budget, func() []*corev1.Pod {
		all, _ := pods.List(selector) // a cache does not fail
		return all
	})
	slices.Sort(names)
	for _, name := range names {
		if pod, err := pods.Get(name); err == nil && selector.Matches(labels.Set(pod.Labels)) {
			seen.pods = append(seen.pods, pod)
		}
	}
	return seen
}

// podKeys notes which budgets select a pod, and returns what a change of it concerns: the budgets that select it or did before, and the pod itself if
// it has to be reconciled.
func (l *loop) podKeys(before, after metav1.Object) []controller.Key {
	was, _ := before.(*corev1.Pod)
	is, _ := after.(*corev1.Pod)
	var selected, keys []controller.Key
	if was == nil || is == nil || matters(was, is) {
		if is != nil {
			selected = l.selecting(is)
		}
		if was != nil && (is == nil || !maps.Equal(was.Labels, is.Labels)) {
			keys = l.selecting(was)
			l.members.change(was.Name, keys, selected)
		} else {
			l.members.change(is.Name, nil, selected)
		}
		keys = append(keys, selected...)
	}
	if is != nil && (len(selected) > 1 || disruptionTarget(is) != nil) {
		keys = append(keys, podKey(is))
	}
	return keys
}

func podKey(pod *corev1.Pod) controller.Key {
	return controller.Key{Namespace: pod.Namespace, Name: podPrefix + pod.Name}
}

// matters reports whether a change of a pod may change the status of its budgets.
func matters(was, is *corev1.Pod) bool {
	return was.UID != is.UID || owned.Ready(was) != owned.Ready(is) || (was.DeletionTimestamp == nil) != (is.DeletionTimestamp == nil) ||
		!maps.Equal(was.Labels, is.Labels) || controllerUID(was) != controllerUID(is)
}

func controllerUID(pod *corev1.Pod) types.UID {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return ref.UID
	}
	return ""
}

// scaled returns the Keys of a kind of controllers: the budgets that select its pods, when it wants another number of them. spec returns that number
// and the labels of the pods.
func scaled[T metav1.Object](l *loop, spec func(T) (*int32, map[string]string)) func(before, after metav1.Object) []controller.Key {
	return func(before, after metav1.Object) []controller.Key {
		was, ok := before.(T)
		is, too := after.(T)
		if !ok || !too {
			return nil // its pods come and go, too
		}
		replicas, podLabels := spec(is)
		if old, _ := spec(was); replicas == nil || old != nil && *old == *replicas {
			return nil
		}
		return l.selecting(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: is.GetNamespace(), Labels: podLabels}})
	}
}

// labelIndex is the name of the index of budgets by a label that their pods have, so that finding the budgets of a pod need not go through all
// those of its namespace.
const labelIndex = "disruption.label"

// labelValue returns the index value of budgets whose selector requires a label; without one, of those that require none.
func labelValue(namespace, label string) string { return namespace + "/" + label }

func indexByLabel(budgets cache.SharedIndexInformer) {
	if _, indexed := budgets.GetIndexer().GetIndexers()[labelIndex]; indexed {
		return
	}
	err := budgets.AddIndexers(cache.Indexers{labelIndex: func(obj any) ([]string, error) {
		budget, ok := obj.(*policyv1.PodDisruptionBudget)
		if !ok || budget.Spec.Selector == nil {
			return nil, nil // no selector selects nothing
		}
		first := "" // any of the labels will do
		for name, value := range budget.Spec.Selector.MatchLabels {
			if label := name + "=" + value; first == "" || label < first {
				first = label
			}
		}
		return []string{labelValue(budget.Namespace, first)}, nil
	}})
	if err != nil {
		panic("indexing budgets by label: " + err.Error()) // only if the index name is in use
	}
}

// selecting returns the keys of the budgets that select a pod, sorted by name.
func (l *loop) selecting(pod *corev1.Pod) []controller.Key {
	var keys []controller.Key
	add := func(value string) {
		found, _ := l.byLabel.ByIndex(labelIndex, value) // the index is there
		for _, obj := range found {
			budget, ok := obj.(*policyv1.PodDisruptionBudget)
			if !ok {
				continue
			}
			if selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector); err == nil && selector.Matches(labels.Set(pod.Labels)) {
				keys = append(keys, controller.KeyOf(budget))
			}
		}
	}
	add(labelValue(pod.Namespace, ""))
	for name, value := range pod.Labels {
		add(labelValue(pod.Namespace, name+"="+value))
	}
	slices.SortFunc(keys, func(a, b controller.Key) int { return strings.Compare(a.Name, b.Name) })
	return keys
}
