package daemonset

import (
	"cmp"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// burst is how many pods are created, and how many deleted, in one reconcile. The rest follows when the caches have observed them.
const burst = 250

// observed holds the state that a decision is made from. Pods and revisions are those that the DaemonSet controls and selects.
type observed struct {
	set        *appsv1.DaemonSet
	derived    *derived
	pods       []*corev1.Pod
	revisions  []*appsv1.ControllerRevision
	nodes      []*corev1.Node
	failedPods *flowcontrol.Backoff
	taken      func(name string) bool                       // whether a pod has that name
	revision   func(name string) *appsv1.ControllerRevision // returns the revision of that name, whatever controls it, or nil
}

// state holds what is derived from the observed state, and the decision so far.
type state struct {
	observed
	now     time.Time
	hash    string                       // controller-revision-hash of the template, as pods are labelled
	old     []*appsv1.ControllerRevision // revisions of other templates
	targets []target                     // by node name

	generation string // of the template, empty if the set has no such annotation

	creates      []string            // nodes that need a pod
	deletes      []*corev1.Pod       // pods to delete
	events       []controller.Action // Events about the pods that are deleted
	failures     []controller.Action // Events about failed writes
	requeueAfter time.Duration       // 0: not requeued
}

// decide returns what to do about a DaemonSet.
func decide(o observed, now time.Time) controller.Decision {
	s := &state{observed: o, now: now, generation: templateGeneration(o.set), targets: make([]target, 0, len(o.nodes))}
	index := make(map[string]int, len(o.nodes))
	for _, node := range o.nodes {
		index[node.Name] = len(s.targets)
		s.targets = append(s.targets, target{name: node.Name, exists: true, fit: fits(o.derived.pod, node)})
	}
	for _, pod := range o.pods {
		node := nodeOf(pod)
		if node == "" || owned.Terminal(pod) && pod.DeletionTimestamp != nil {
			continue // it will be gone soon
		}
		i, known := index[node]
		if !known {
			i = len(s.targets)
			index[node] = i
			s.targets = append(s.targets, target{name: node})
		}
		s.targets[i].pods = append(s.targets[i].pods, pod)
	}
	for i := range s.targets {
		slices.SortFunc(s.targets[i].pods, boundThenOldest)
	}
	slices.SortFunc(s.targets, func(a, b target) int { return cmp.Compare(a.name, b.name) })
	return s.history()
}

// target is a node, with the DaemonSet's pods on it.
type target struct {
	name   string
	exists bool // false: the node was deleted, and only its pods are left
	fit
	pods []*corev1.Pod // bound to it or created for it, the one to keep first
}

// boundThenOldest sorts pods that are bound before those that are not, and older ones before younger. Of those created in the same second, the
// ready one comes first: it is the one to keep.
func boundThenOldest(a, b *corev1.Pod) int {
	return cmp.Or(not(a.Spec.NodeName != "")-not(b.Spec.NodeName != ""), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), not(owned.Ready(a))-not(owned.Ready(b)),
		cmp.Compare(a.Name, b.Name))
}

// not returns 0 for true and 1 for false.
func not(holds bool) int {
	if holds {
		return 0
	}
	return 1
}

// manageAndRoll decides about pods, once the history is in order.
func (s *state) manageAndRoll() controller.Decision {
	s.manage()
	if len(s.creates) == 0 && len(s.deletes) == 0 && s.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		if err := s.roll(); err != nil {
			return s.report(err)
		}
	}
	return s.create()
}

// create creates missing pods and then deletes others, whether creating succeeded or not.
func (s *state) create() controller.Decision {
	actions := s.events
	var creates []controller.Action
	for _, node := range s.creates[:min(len(s.creates), burst)] {
		pod := s.newPod(node)
		creates = append(creates, controller.SlowStart(nil, controller.Create(pod),
			controller.Event(s.set, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", pod.Name)))
	}
	if len(creates) > 0 {
		actions = append(actions, controller.SlowStart(nil, creates...))
	}
	if len(actions) == 0 {
		return s.delete(nil)
	}
	return controller.Decision{Actions: actions, Then: func(err error) controller.Decision {
		err = controller.FilterOut(err, func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) })
		s.addFailures("FailedCreate", "Error creating: %v", controller.FilterOut(err, apierrors.IsAlreadyExists)) // created by a request before the loop was restarted
		return s.delete(err)
	}}
}

func (s *state) delete(createErr error) controller.Decision {
	var deletes []controller.Action
	for _, pod := range s.deletes[:min(len(s.deletes), burst)] {
		deletes = append(deletes, controller.SlowStart(nil, controller.Delete(pod, metav1.DeleteOptions{}),
			controller.Event(s.set, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)))
	}
	done := func(err error) controller.Decision {
		s.addFailures("FailedDelete", "Error deleting: %v", err)
		if err = errors.Join(createErr, err); err != nil {
			return s.report(err)
		}
		return s.cleanUp()
	}
	if len(deletes) == 0 {
		return done(nil)
	}
	return controller.Decision{Actions: []controller.Action{controller.Parallel(burst, deletes...)}, Then: done}
}

// addFailures adds a warning Event for each error.
func (s *state) addFailures(reason, format string, err error) {
	for _, e := range controller.Errors(err) {
		s.failures = append(s.failures, controller.Event(s.set, corev1.EventTypeWarning, reason, format, e))
	}
}

// requeue requeues the DaemonSet after a time, unless it is requeued sooner.
func (s *state) requeue(after time.Duration) {
	if s.requeueAfter == 0 || after < s.requeueAfter {
		s.requeueAfter = after
	}
}
