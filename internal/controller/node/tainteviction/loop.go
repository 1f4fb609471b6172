package tainteviction

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/node"
)

const (
	// Name is the loop's name.
	Name = "taint-eviction-controller"

	workers = 8 // as upstream
)

// New returns the loop. Its keys are pods.
func New(deps controller.Deps) controller.Loop {
	pods, nodes := deps.Informers.Core().V1().Pods(), deps.Informers.Core().V1().Nodes()
	l := &loop{pods: pods.Lister(), nodes: nodes.Lister(), podsOn: node.PodsOn(pods.Informer()), plans: map[controller.Key]*plan{}}
	return controller.Loop{
		Name: Name, ServiceAccount: node.Account, QueueName: "noexec_taint_pod", Workers: workers,
		Watch: []controller.Watch{
			{Informer: pods.Informer(), Type: &corev1.Pod{}, Keys: l.podChanged},
			{Informer: nodes.Informer(), Type: &corev1.Node{}, Keys: l.nodeChanged},
		},
		Reconcile: l.reconcile,
	}
}

type loop struct {
	pods   corelisters.PodLister
	nodes  corelisters.NodeLister
	podsOn func(node string) []*corev1.Pod

	mu    sync.Mutex
	plans map[controller.Key]*plan // scheduled evictions
}

// podChanged returns pods on tainted nodes. Most pods are not, and cost no more than this check.
func (l *loop) podChanged(before, after metav1.Object) []controller.Key {
	pod, _ := after.(*corev1.Pod)
	if pod == nil {
		if key := controller.KeyOf(before); l.planned(key) != nil {
			return []controller.Key{key}
		}
		return nil
	}
	if pod.Spec.NodeName == "" {
		return nil
	}
	if old, _ := before.(*corev1.Pod); old != nil && old != pod && old.UID == pod.UID && old.Spec.NodeName == pod.Spec.NodeName &&
		equality.Semantic.DeepEqual(old.Spec.Tolerations, pod.Spec.Tolerations) {
		return nil
	}
	// If the node has not been observed yet, or its taints change just now, nodeChanged finds the pod.
	if key := controller.KeyOf(pod); l.planned(key) != nil || len(noExecute(l.node(pod.Spec.NodeName))) > 0 {
		return []controller.Key{key}
	}
	return nil
}

// nodeChanged returns all pods of a node whose NoExecute taints have changed.
func (l *loop) nodeChanged(before, after metav1.Object) []controller.Key {
	was, _ := before.(*corev1.Node)
	is, _ := after.(*corev1.Node)
	if is == nil || len(is.Spec.Taints) == 0 && (was == nil || was == is) || was != is && equality.Semantic.DeepEqual(noExecute(was), noExecute(is)) {
		return nil
	}
	var keys []controller.Key
	for _, pod := range l.podsOn(is.Name) {
		keys = append(keys, controller.KeyOf(pod))
	}
	return keys
}

func (l *loop) reconcile(key controller.Key, now time.Time) controller.Decision {
	o := observed{key: key, planned: l.planned(key)}
	if pod, err := l.pods.Pods(key.Namespace).Get(key.Name); err == nil {
		o.pod = pod
		o.node = l.node(pod.Spec.NodeName)
		o.taints = noExecute(o.node)
	}
	decision, planned := decide(o, now)
	l.mu.Lock()
	defer l.mu.Unlock()
	if planned == nil {
		delete(l.plans, key)
	} else {
		l.plans[key] = planned
	}
	return decision
}

func (l *loop) planned(key controller.Key) *plan {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.plans[key]
}

func (l *loop) node(name string) *corev1.Node {
	n, err := l.nodes.Get(name)
	if err != nil {
		return nil
	}
	return n
}

// noExecute returns the NoExecute taints of a node. It allocates nothing for the many nodes that have none.
func noExecute(n *corev1.Node) []corev1.Taint {
	if n == nil {
		return nil
	}
	isNoExecute := func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }
	if !slices.ContainsFunc(n.Spec.Taints, isNoExecute) {
		return nil
	}
	var out []corev1.Taint
	for _, t := range n.Spec.Taints {
		if isNoExecute(t) {
			out = append(out, t)
		}
	}
	return out
}
