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
	// burst is how many pods are created or deleted in a look. The rest follows when the caches know of them.
	burst = 500
	// claims is how many pods are adopted or let go at a time.
	claims = 10
)

// observed is what is decided on.
type observed struct {
	set
	pods    []*corev1.Pod          // those that it controls
	strays  func() []*corev1.Pod   // those that it selects and nobody controls
	related func() []*corev1.Pod   // those of all sets with the same controller
	taken   func(name string) bool // whether a pod has that name
	wait    time.Duration          // for which changes of mere numbers are not worth telling yet
}

// decide says what to do about a set.
func decide(o observed, now time.Time) controller.Decision {
	var mine, unlike []*corev1.Pod
	terminating := 0
	for _, pod := range o.pods {
		switch selected := o.selector.Matches(labels.Set(pod.Labels)); {
		case selected && owned.Active(pod):
			mine = append(mine, pod)
		case selected && pod.DeletionTimestamp != nil && !owned.Ended(pod):
			terminating++
		case !selected && owned.Active(pod):
			unlike = append(unlike, pod)
		}
	}
	if o.GetDeletionTimestamp() != nil {
		return o.report(mine, terminating, nil, now)
	}
	strays := slices.DeleteFunc(o.strays(), func(pod *corev1.Pod) bool { return !owned.Active(pod) })
	return o.letGo(unlike, func() controller.Decision {
		return o.adopt(strays, func() controller.Decision {
			return o.manage(append(mine, strays...), terminating, now)
		})
	})
}

// letGo has pods no longer be the set's.
func (o *observed) letGo(pods []*corev1.Pod, then func() controller.Decision) controller.Decision {
	if len(pods) == 0 {
		return then()
	}
	var release []controller.Action
	for _, pod := range pods {
		release = append(release, owned.Release(pod, o.GetUID()))
	}
	return controller.Decision{Actions: []controller.Action{controller.Together(claims, release...)}, Then: func(err error) controller.Decision {
		for _, e := range controller.Errors(err) {
			// A pod that is gone, or another of its name, need not be let go.
			if !apierrors.IsNotFound(e) && !apierrors.IsInvalid(e) {
				return controller.Decision{Err: err}
			}
		}
		return then()
	}}
}

// adopt makes pods the set's, if that is still there.
func (o *observed) adopt(pods []*corev1.Pod, then func() controller.Decision) controller.Decision {
	if len(pods) == 0 {
		return then()
	}
	var adopt []controller.Action
	for _, pod := range pods {
		adopt = append(adopt, owned.Adopt(pod, metav1.NewControllerRef(o.Object, o.kind)))
	}
	return controller.Decision{Actions: []controller.Action{owned.Alive(o.Object, o.get), controller.Together(claims, adopt...)},
		Then: func(err error) controller.Decision {
			if err != nil {
				return controller.Decision{Err: err} // one might be another's by now: the caches will say
			}
			return then()
		}}
}

// manage creates what is missing and deletes what is too much.
func (o *observed) manage(mine []*corev1.Pod, terminating int, now time.Time) controller.Decision {
	missing := o.replicas - len(mine)
	switch {
	case missing > 0:
		return controller.Decision{Actions: []controller.Action{controller.SlowStart(nil, o.creates(min(missing, burst))...)},
			Then: func(err error) controller.Decision {
				return o.managed(mine, terminating, failure{"FailedCreate", "Error creating: %v", "%w"}.of(err), now)
			}}
	case missing < 0:
		victims := o.victims(mine, min(-missing, burst), now)
		return controller.Decision{Actions: []controller.Action{controller.Together(burst, o.deletes(victims)...)},
			Then: func(err error) controller.Decision {
				return o.managed(mine, terminating, failure{"FailedDelete", "Error deleting: %v", "unable to delete pods: %w"}.of(err), now)
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

// inOrder carries out an action, and the next if that went well.
func inOrder(actions ...controller.Action) controller.Action {
	return controller.SlowStart(nil, actions...)
}

// outcome is how creating or deleting pods went.
type outcome struct {
	reason string
	failed error    // what the set's condition says, or nil
	tell   []string // what events say
	retry  error    // nobody need hear of it, but it is to be tried again
}

// failure is how pods that could not be created or deleted are told of.
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
			// Nothing can be created there any more, and soon nothing need be.
		case apierrors.IsAlreadyExists(e), apierrors.IsConflict(e):
			// It was created before, by a request whose answer never came; or another pod has the name by now. The caches will say.
			out.retry = e
		default:
			out.tell = append(out.tell, fmt.Sprintf(f.event, e))
			if out.failed == nil {
				out.failed = fmt.Errorf(f.condition, e)
			}
		}
	}
	return out
}

// managed tells how it went and reports.
func (o *observed) managed(mine []*corev1.Pod, terminating int, went *outcome, now time.Time) controller.Decision {
	decision := o.report(mine, terminating, went, now)
	var events []controller.Action
	for _, text := range went.tell {
		events = append(events, controller.Event(o.Object, corev1.EventTypeWarning, went.reason, "%s", text))
	}
	decision.Actions = append(events, decision.Actions...)
	decision.Err = went.retry
	if went.failed != nil {
		decision.Err = went.failed
	}
	return decision
}
