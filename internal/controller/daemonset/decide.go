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

// burst is how many pods are created, and how many deleted, in a look. The rest follows when the caches know of them.
const burst = 250

// observed is what is decided on. Pods and revisions are those that the DaemonSet controls and selects.
type observed struct {
	set       *appsv1.DaemonSet
	derived   *derived
	pods      []*corev1.Pod
	revisions []*appsv1.ControllerRevision
	nodes     []*corev1.Node
	failing   *flowcontrol.Backoff
	taken     func(name string) bool                       // whether there is a pod of that name
	revision  func(name string) *appsv1.ControllerRevision // whoever's
}

// state is what is worked out.
type state struct {
	observed
	now    time.Time
	hash   string // of the template, as pods are labelled
	old    []*appsv1.ControllerRevision
	places []place // by name

	generation string // of the template, empty if the set does not say

	creates  []string            // nodes that need a pod
	deletes  []*corev1.Pod       // pods that must go
	events   []controller.Action // about pods that were found
	failures []controller.Action // events about what could not be done
	again    time.Duration       // when to look again, if not zero
}

// decide says what to do about a DaemonSet.
func decide(o observed, now time.Time) controller.Decision {
	s := &state{observed: o, now: now, generation: templateGeneration(o.set), places: make([]place, 0, len(o.nodes))}
	at := make(map[string]int, len(o.nodes))
	for _, node := range o.nodes {
		at[node.Name] = len(s.places)
		s.places = append(s.places, place{name: node.Name, there: true, fit: fits(o.derived.pod, node)})
	}
	for _, pod := range o.pods {
		node := nodeOf(pod)
		if node == "" || owned.Ended(pod) && pod.DeletionTimestamp != nil {
			continue // that is only a matter of time
		}
		i, known := at[node]
		if !known {
			i = len(s.places)
			at[node] = i
			s.places = append(s.places, place{name: node})
		}
		s.places[i].pods = append(s.places[i].pods, pod)
	}
	for i := range s.places {
		slices.SortFunc(s.places[i].pods, placedThenOldest)
	}
	slices.SortFunc(s.places, func(a, b place) int { return cmp.Compare(a.name, b.name) })
	return s.history()
}

// place is a node, as the DaemonSet sees it.
type place struct {
	name  string
	there bool // else the node is gone, and only its pods are left
	fit
	pods []*corev1.Pod // on it or made for it, the one to keep first
}

// placedThenOldest puts pods that are on a node before those that are still to be bound, and older ones before younger. Of those that are created
// in the same second the one that is ready goes first: it is the one to keep.
func placedThenOldest(a, b *corev1.Pod) int {
	return cmp.Or(not(a.Spec.NodeName != "")-not(b.Spec.NodeName != ""), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), not(owned.Ready(a))-not(owned.Ready(b)),
		cmp.Compare(a.Name, b.Name))
}

// not is 0 for what holds.
func not(holds bool) int {
	if holds {
		return 0
	}
	return 1
}

// run sees to the pods, now that the history is in order.
func (s *state) run() controller.Decision {
	s.manage()
	if len(s.creates) == 0 && len(s.deletes) == 0 && s.set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		if err := s.roll(); err != nil {
			return s.report(err)
		}
	}
	return s.create()
}

// create creates the pods that are missing, and then has others deleted, whether that went well or not.
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
		err = controller.Without(err, func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) })
		s.tell("FailedCreate", "Error creating: %v", controller.Without(err, apierrors.IsAlreadyExists)) // which is ours, from before the loop was stopped
		return s.delete(err)
	}}
}

func (s *state) delete(problem error) controller.Decision {
	var deletes []controller.Action
	for _, pod := range s.deletes[:min(len(s.deletes), burst)] {
		deletes = append(deletes, controller.SlowStart(nil, controller.Delete(pod, metav1.DeleteOptions{}),
			controller.Event(s.set, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)))
	}
	done := func(err error) controller.Decision {
		s.tell("FailedDelete", "Error deleting: %v", err)
		if problem = errors.Join(problem, err); problem != nil {
			return s.report(problem)
		}
		return s.cleanUp()
	}
	if len(deletes) == 0 {
		return done(nil)
	}
	return controller.Decision{Actions: []controller.Action{controller.Together(burst, deletes...)}, Then: done}
}

// tell tells people of each error.
func (s *state) tell(reason, format string, err error) {
	for _, e := range controller.Errors(err) {
		s.failures = append(s.failures, controller.Event(s.set, corev1.EventTypeWarning, reason, format, e))
	}
}

// lookAgain has the DaemonSet looked at after a time, or sooner.
func (s *state) lookAgain(after time.Duration) {
	if s.again == 0 || after < s.again {
		s.again = after
	}
}
