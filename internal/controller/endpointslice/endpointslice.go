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
	// managedBy is the value of the label endpointslice.kubernetes.io/managed-by of this loop's slices.
	managedBy = "endpointslice-controller.k8s.io"
	// maxEndpoints is how many endpoints a slice holds at most.
	maxEndpoints = 100
	// byService is the name of the index of slices by Service.
	byService = "endpointslice-controller.service"
)

// New returns the loop. Its keys are Services.
func New(deps controller.Deps) controller.Loop {
	core := deps.Informers.Core().V1()
	slices := deps.Informers.Discovery().V1().EndpointSlices().Informer()
	if err := slices.AddIndexers(cache.Indexers{byService: serviceOf}); err != nil {
		panic(err) // only if the index name is in use
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

	// topology holds the capacity of the nodes of each zone, and which zones each Service's endpoints are allocated to. It is derived from observed
	// state.
	topology     *topologycache.TopologyCache
	nodesChanged atomic.Bool // nodes have changed since topology was refreshed
	usesHints    atomic.Bool // some Service uses topology hints, so nodes matter
	// times tracks when the first change happened that slices do not reflect yet, for the annotation that says so.
	times *endpointsliceutil.TriggerTimeTracker
}

// serviceOf returns the key of the Service that a slice of this loop belongs to.
func serviceOf(obj any) ([]string, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok || slice.Labels[discoveryv1.LabelManagedBy] != managedBy || slice.Labels[discoveryv1.LabelServiceName] == "" {
		return nil, nil
	}
	return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
}

// servicesOfNodes returns the Services whose endpoints are allocated to zones that can no longer carry them.
func (l *loop) servicesOfNodes(before, after metav1.Object) []controller.Key {
	was, _ := before.(*corev1.Node)
	is, _ := after.(*corev1.Node)
	if was != nil && is != nil && ready(was) == ready(is) && was.Labels[corev1.LabelTopologyZone] == is.Labels[corev1.LabelTopologyZone] {
		return nil
	}
	l.nodesChanged.Store(true)
	if !l.usesHints.Load() {
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

// refreshTopology updates the topology cache if nodes have changed.
func (l *loop) refreshTopology() {
	if !l.nodesChanged.Swap(false) {
		return
	}
	nodes, err := l.nodes.List(labels.Everything())
	if err != nil {
		return
	}
	l.topology.SetNodes(discardLog, nodes)
}

// servicesOfSlice returns the Services that a change of a slice concerns, if the slice is or was this loop's.
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

// reconcile reads the pods that a Service selects and its slices from the caches.
func (l *loop) reconcile(key controller.Key, _ time.Time) controller.Decision {
	service, err := l.services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		l.times.DeleteService(key.Namespace, key.Name)
		for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
			l.topology.RemoveHints(key.String(), family)
		}
		return controller.Nothing // its slices are left to the garbage collector
	}
	if err != nil {
		return controller.Decision{Err: err}
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName || service.Spec.Selector == nil {
		return controller.Nothing // its slices are managed by others
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
	if hasTopologyMode(service) {
		l.usesHints.Store(true)
		l.refreshTopology()
	}
	return decide(observed{service: service, pods: pods, slices: slices, nodes: l.nodes, topology: l.topology,
		changed: l.times.ComputeEndpointLastChangeTriggerTime(key.Namespace, service, pods)})
}

// hasTopologyMode reports whether a Service asks for topology-aware routing.
func hasTopologyMode(service *corev1.Service) bool {
	return service.Annotations[corev1.AnnotationTopologyMode] != "" || service.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints] != ""
}
