package endpointslice

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	reconciler "k8s.io/endpointslice"
	"k8s.io/endpointslice/topologycache"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	"skiff/internal/controller"
)

// discardLog is the reconciler's logger: what matters is returned as errors and Events.
var discardLog klog.Logger

// observed holds the state that a decision is made from.
type observed struct {
	service  *corev1.Service
	pods     []*corev1.Pod // the pods that the Service selects
	slices   []*discoveryv1.EndpointSlice
	nodes    corelisters.NodeLister
	topology *topologycache.TopologyCache
	changed  time.Time // when the first change happened that the slices do not reflect
}

// decide runs upstream's reconciler against a planner and turns its plan into actions.
func decide(o observed) controller.Decision {
	p := &plan{service: o.service}
	// The reconciler tracks its writes, to notice caches that lag. Here the runtime does that: the tracker is thrown away.
	r := reconciler.NewReconciler(planner{plan: p}, o.nodes, maxEndpoints, endpointsliceutil.NewEndpointSliceTracker(), o.topology, p, managedBy,
		reconciler.WithPreferSameTrafficDistributionEnabled(true))
	p.incomplete = r.Reconcile(discardLog, o.service, o.pods, o.slices, o.changed)
	return p.carryOut(0)
}

// plan records what the reconciler wants to write. It is an event recorder.
type plan struct {
	service    *corev1.Service
	steps      []step
	events     []controller.Action
	incomplete error // what could not be planned
}

type step struct {
	action controller.Action
	doing  string // what failed, for errors
}

// carryOut carries out the steps from an index on, one after the other.
func (p *plan) carryOut(from int) controller.Decision {
	if from == len(p.steps) {
		return p.finish(p.incomplete)
	}
	s := p.steps[from]
	return controller.Decision{Actions: []controller.Action{s.action}, Then: func(err error) controller.Decision {
		switch {
		case err == nil:
			return p.carryOut(from + 1)
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			return controller.Nothing // it would fail until the Service is deleted too
		default:
			return p.finish(fmt.Errorf("%s for Service %s: %w", s.doing, controller.KeyOf(p.service), err))
		}
	}}
}

func (p *plan) finish(err error) controller.Decision {
	actions := p.events
	if err != nil {
		actions = append(actions, controller.Event(p.service, corev1.EventTypeWarning, "FailedToUpdateEndpointSlices",
			"Error updating Endpoint Slices for Service %s: %v", controller.KeyOf(p.service), err))
	}
	return controller.Decision{Actions: actions, Err: err}
}

// Event records an Event in the plan.
func (p *plan) Event(about runtime.Object, kind, reason, message string) {
	if obj, ok := about.(controller.Object); ok {
		p.events = append(p.events, controller.Event(obj, kind, reason, "%s", message))
	}
}

// Eventf records an Event in the plan.
func (p *plan) Eventf(about runtime.Object, kind, reason, format string, args ...any) {
	p.Event(about, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf records an Event in the plan, without annotations: the reconciler uses none.
func (p *plan) AnnotatedEventf(about runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	p.Event(about, kind, reason, fmt.Sprintf(format, args...))
}

// planner is the client of the reconciler: it writes into the plan. It implements only what the reconciler uses.
type planner struct {
	kubernetes.Interface
	plan *plan
}

func (c planner) DiscoveryV1() discoveryclient.DiscoveryV1Interface {
	return discoveryPlanner{plan: c.plan}
}

type discoveryPlanner struct {
	discoveryclient.DiscoveryV1Interface
	plan *plan
}

func (c discoveryPlanner) EndpointSlices(string) discoveryclient.EndpointSliceInterface {
	return slicePlanner{plan: c.plan}
}

type slicePlanner struct {
	discoveryclient.EndpointSliceInterface
	plan *plan
}

func (c slicePlanner) Create(_ context.Context, slice *discoveryv1.EndpointSlice, _ metav1.CreateOptions) (*discoveryv1.EndpointSlice, error) {
	c.plan.steps = append(c.plan.steps, step{controller.Create(slice), "failed to create EndpointSlice"})
	return slice, nil
}

func (c slicePlanner) Update(_ context.Context, slice *discoveryv1.EndpointSlice, _ metav1.UpdateOptions) (*discoveryv1.EndpointSlice, error) {
	c.plan.steps = append(c.plan.steps, step{controller.Update(slice), "failed to update " + slice.Name + " EndpointSlice"})
	return slice, nil
}

func (c slicePlanner) Delete(_ context.Context, name string, _ metav1.DeleteOptions) error {
	c.plan.steps = append(c.plan.steps, step{controller.Delete(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: c.plan.service.Namespace, Name: name}},
		metav1.DeleteOptions{}), "failed to delete " + name + " EndpointSlice"})
	return nil
}
