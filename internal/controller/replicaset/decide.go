package replicaset

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

const (
	// burst is how many pods are created or deleted in one reconcile. The rest follows when the caches have observed them.
	burst = 500
	// parallelClaims is how many pods are adopted or released at a time.
	parallelClaims = 10
)

// observed holds the state that a decision is made from.
type observed struct {
	set
	pods    []*corev1.Pod          // the pods that the set controls
	strays  func() []*corev1.Pod   // returns the pods that match the selector and have no controller
	related func() []*corev1.Pod   // returns the pods of all sets with the same controller
	taken   func(name string) bool // whether a pod has that name
	wait    time.Duration          // how long changes of mere counts are not worth a status update yet
}

// decide returns what to do about a set: adopt and release pods, then create or delete pods, then update the status.
func decide(o observed, now time.Time) controller.Decision {
	var mine, unlike []*corev1.Pod
	terminating := 0
	for _, pod := range o.pods {
		switch selected := o.selector.Matches(labels.Set(pod.Labels)); {
		case selected && owned.Active(pod):
			mine = append(mine, pod)
		case selected && pod.DeletionTimestamp != nil && !owned.Terminal(pod):
			terminating++
		case !selected && owned.Active(pod):
			unlike = append(unlike, pod)
		}
	}
	if o.GetDeletionTimestamp() != nil {
		return o.report(mine, terminating, nil, now)
	}
	strays := slices.DeleteFunc(o.strays(), func(pod *corev1.Pod) bool { return !owned.Active(pod) })
	return o.release(unlike, func() controller.Decision {
		return o.adopt(strays, func() controller.Decision {
			return o.manage(append(mine, strays...), terminating, now)
		})
	})
}

// release removes the set's owner reference from pods that it no longer selects.
func (o *observed) release(pods []*corev1.Pod, then func() controller.Decision) controller.Decision {
	if len(pods) == 0 {
		return then()
	}
	var release []controller.Action
	for _, pod := range pods {
		release = append(release, owned.Release(pod, o.GetUID()))
	}
	return controller.Decision{Actions: []controller.Action{controller.Parallel(parallelClaims, release...)}, Then: func(err error) controller.Decision {
		for _, e := range controller.Errors(err) {
			// A pod that is gone, or another of its name, need not be released.
			if !apierrors.IsNotFound(e) && !apierrors.IsInvalid(e) {
				return controller.Decision{Err: err}
			}
		}
		return then()
	}}
}

// adopt makes the set the controller of pods, if the set still exists.
func (o *observed) adopt(pods []*corev1.Pod, then func() controller.Decision) controller.Decision {
	if len(pods) == 0 {
		return then()
	}
	var adopt []controller.Action
	for _, pod := range pods {
		adopt = append(adopt, owned.Adopt(pod, metav1.NewControllerRef(o.Object, o.kind)))
	}
	return controller.Decision{Actions: []controller.Action{owned.CanAdopt(o.Object, o.get), controller.Parallel(parallelClaims, adopt...)},
		Then: func(err error) controller.Decision {
			if err != nil {
				return controller.Decision{Err: err} // another owner may have adopted one: the caches will tell
			}
			return then()
		}}
}

// manage creates missing pods and deletes excess ones.
func (o *observed) manage(mine []*corev1.Pod, terminating int, now time.Time) controller.Decision {
	missing := o.replicas - len(mine)
	switch {
	case missing > 0:
		return controller.Decision{Actions: []controller.Action{controller.SlowStart(nil, o.creates(min(missing, burst))...)},
			Then: func(err error) controller.Decision {
				return o.reportOutcome(mine, terminating, failure{"FailedCreate", "Error creating: %v", "%w"}.of(err), now)
			}}
	case missing < 0:
		victims := o.victims(mine, min(-missing, burst), now)
		return controller.Decision{Actions: []controller.Action{controller.Parallel(burst, o.deletes(victims)...)},
			Then: func(err error) controller.Decision {
				return o.reportOutcome(mine, terminating, failure{"FailedDelete", "Error deleting: %v", "unable to delete pods: %w"}.of(err), now)
			}}
	}
	return o.report(mine, terminating, nil, now)
}

func (o *observed) creates(n int) []controller.Action {
	var actions []controller.Action
	for _, name := range owned.Names(o.set, owned.Prefix(o.GetName()), "", n, o.taken) {
		actions = append(actions, inOrder(controller.Create(newPod(o.set, name)),
			controller.Event(o.Object, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %s", name)))
	}
	return actions
}

func (o *observed) deletes(victims []*corev1.Pod) []controller.Action {
	var actions []controller.Action
	for _, pod := range victims {
		actions = append(actions, inOrder(controller.Delete(pod, metav1.DeleteOptions{}),
			controller.Event(o.Object, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %s", pod.Name)))
	}
	return actions
}

// inOrder carries out actions one after the other, and stops at the first that fails.
func inOrder(actions ...controller.Action) controller.Action {
	return controller.SlowStart(nil, actions...)
}

// outcome holds the result of creating or deleting pods.
type outcome struct {
	reason string
	failed error    // message of the ReplicaFailure condition, or nil
	events []string // messages of warning Events
	retry  error    // requeues the key without an Event or condition
}

// failure holds how errors of creating or deleting pods are reported: an Event reason, and formats of the Event and the condition.
type failure struct{ reason, event, condition string }

func (f failure) of(err error) *outcome {
	out := &outcome{reason: f.reason}
	if errors.Is(err, context.Canceled) {
		out.retry = err // the loop is being stopped
		return out
	}
	for _, e := range controller.Errors(err) {
		switch {
		case apierrors.HasStatusCause(e, corev1.NamespaceTerminatingCause):
			// Nothing can be created in a terminating namespace, and the set will soon be deleted.
		case apierrors.IsAlreadyExists(e), apierrors.IsConflict(e):
			// The pod was created before by a request whose response was lost, or another pod has its name: the caches will tell.
			out.retry = e
		default:
			out.events = append(out.events, fmt.Sprintf(f.event, e))
			if out.failed == nil {
				out.failed = fmt.Errorf(f.condition, e)
			}
		}
	}
	return out
}

// reportOutcome returns the status update and the Events about the outcome of creating or deleting pods.
func (o *observed) reportOutcome(mine []*corev1.Pod, terminating int, result *outcome, now time.Time) controller.Decision {
	decision := o.report(mine, terminating, result, now)
	var events []controller.Action
	for _, text := range result.events {
		events = append(events, controller.Event(o.Object, corev1.EventTypeWarning, result.reason, "%s", text))
	}
	decision.Actions = append(events, decision.Actions...)
	decision.Err = result.retry
	if result.failed != nil {
		decision.Err = result.failed
	}
	return decision
}
