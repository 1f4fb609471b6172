// Package endpointslice keeps the EndpointSlices of Services that select pods: which addresses are behind a Service, ready or not, in slices of
// at most a hundred. What slices there should be is worked out by k8s.io/endpointslice, the reconciler that Kubernetes itself uses; this
// package observes, lets it plan, and turns its plan into actions.
package endpointslice

import (
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice/topologycache"
	endpointsliceutil "k8s.io/endpointslice/util"

	"skiff/internal/controller"
	"skiff/internal/controller/services"
)

const (
	// managedBy is the value of the label endpointslice.kubernetes.io/managed-by of the slices that are this loop's.
	managedBy = "endpointslice-controller.k8s.io"
	// maxEndpoints is how many endpoints a slice holds at most.
	maxEndpoints = 100
	// byService is the name of an index of slices.
	byService = "endpointslice-controller.service"
)

// New makes the loop. Its keys are Services.
func New(deps controller.Deps) controller.Loop {
	core := deps.Informers.Core().V1()
	slices := deps.Informers.Discovery().V1().EndpointSlices().Informer()
	if err := slices.AddIndexers(cache.Indexers{byService: serviceOf}); err != nil {
		panic(err) // only if somebody else uses the name
	}
	l := &loop{
		services: core.Services().Lister(), pods: core.Pods().Lister(), nodes: core.Nodes().Lister(), slices: slices.GetIndexer(),
		topology: topologycache.NewTopologyCache(), times: endpointsliceutil.NewTriggerTimeTracker(),
	}
	l.nodesChanged.Store(true)
	return controller.Loop{
		Name: "endpointslice-controller", EventSource: "endpoint-slice-controller", QueueName: "endpoint_slice",
		Watch: []controller.Watch{
			{Informer: core.Services().Informer(), Type: &corev1.Service{}},
			{Informer: core.Pods().Informer(), Type: &corev1.Pod{}, Keys: services.OfPod(l.services)},
			{Informer: core.Nodes().Informer(), Type: &corev1.Node{}, Keys: l.servicesOfNodes},
			{Informer: slices, Type: &discoveryv1.EndpointSlice{}, Keys: servicesOfSlice},
		},
		Reconcile: l.reconcile,
	}
}

type loop struct {
	services corelisters.ServiceLister
	pods     corelisters.PodLister
	nodes    corelisters.NodeLister
	slices   cache.Indexer

	// What the nodes of each zone can carry, and which zones each Service's endpoints are meant for. It is made of what is observed.
	topology     *topologycache.TopologyCache
	nodesChanged atomic.Bool // since topology was told of them
	hints        atomic.Bool // some Service has asked for zones: nodes matter
	// times knows when a change that slices do not show yet happened, for the annotation that says so.
	times *endpointsliceutil.TriggerTimeTracker
}

// serviceOf is the key of the Service that a slice of this loop's belongs to.
func serviceOf(obj any) ([]string, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelManagedBy] != managedBy || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}

// servicesOfNodes finds the Services whose endpoints are meant for zones that can no longer carry them.
func (l *loop) servicesOfNodes(before, after metav1.Object) []controller.Key {
	was, _ := before.(*corev1.Node)
	is, _ := after.(*corev1.Node)
	if was != nil && is != nil && ready(was) == ready(is) && was.Labels[corev1.LabelTopologyZone] == is.Labels[corev1.LabelTopologyZone] {
		return nil
	}
	l.nodesChanged.Store(true)
	if !l.hints.Load() {
		return nil
	}
	l.refreshTopology()
	var keys []controller.Key
	for _, service := range l.topology.GetOverloadedServices() {
		namespace, name, _ := strings.Cut(service, "/")
		keys = append(keys, controller.Key{Namespace: namespace, Name: name})
	}
	return keys
}

func ready(node *corev1.Node) bool {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// refreshTopology tells the topology cache of the nodes if they have changed.
func (l *loop) refreshTopology() {
	if !l.nodesChanged.Swap(false) {
		return
	}
	nodes, err := l.nodes.List(labels.Everything())
	if err != nil {
		return
	}
	l.topology.SetNodes(silent, nodes)
}

// servicesOfSlice finds the Services that a slice's change concerns, if the slice is or was this loop's.
func servicesOfSlice(before, after metav1.Object) []controller.Key {
	var keys []controller.Key
	ours := false
	for _, obj := range []metav1.Object{before, after} {
		if obj == nil {
			continue
		}
		ours = ours || obj.GetLabels()[discoveryv1.LabelManagedBy] == managedBy
		key := controller.Key{Namespace: obj.GetNamespace(), Name: obj.GetLabels()[discoveryv1.LabelServiceName]}
		if key.Name != "" && (len(keys) == 0 || keys[0] != key) {
			keys = append(keys, key)
		}
	}
	if !ours && len(keys) < 2 {
		return nil
	}
	return keys
}

// reconcile observes what a Service selects and what slices it has, and plans.
func (l *loop) reconcile(key controller.Key, _ time.Time) controller.Decision {
	service, err := l.services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		l.times.DeleteService(key.Namespace, key.Name)
		for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			l.topology.RemoveHints(key.String(), family)
		}
		return controller.Nothing // its slices are the garbage collector's
	}
	if err != nil {
		return controller.Decision{Err: err}
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName || service.Spec.Selector == nil {
		return controller.Nothing // somebody else says what is behind it
	}
	pods, err := l.pods.Pods(key.Namespace).List(labels.Set(service.Spec.Selector).AsSelectorPreValidated())
	if err != nil {
		return controller.Decision{Err: err}
	}
	existing, err := l.slices.ByIndex(byService, key.String())
	if err != nil {
		return controller.Decision{Err: err}
	}
	var slices []*discoveryv1.EndpointSlice
	for _, obj := range existing {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok && slice.DeletionTimestamp == nil {
			slices = append(slices, slice)
		}
	}
	if asksForZones(service) {
		l.hints.Store(true)
		l.refreshTopology()
	}
	return decide(observed{service: service, pods: pods, slices: slices, nodes: l.nodes, topology: l.topology,
		changed: l.times.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)})
}

// asksForZones reports whether a Service asks that its endpoints be shared out among the zones.
func asksForZones(service *corev1.Service) bool {
	return service.Annotations[corev1.AnnotationTopologyMode] != "" || service.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints] != ""
}
