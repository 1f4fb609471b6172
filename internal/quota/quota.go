package quota

import (
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is any stored object.
type Object interface {
	runtime.Object
	metav1.Object
}

// Evaluator measures the objects of one resource. Its methods must be called with objects of that resource.
type Evaluator interface {
	// Counts reports whether objects of this resource count against a limit of that name.
	Counts(name corev1.ResourceName) bool
	// Usage returns what an object uses of everything that can be limited.
	Usage(obj Object) corev1.ResourceList
	// InScope reports whether a selector in a quota's scopes selects the object.
	InScope(selector corev1.ScopedResourceSelectorRequirement, obj Object) (bool, error)
	// Constraints returns an error if the object does not specify what it must once quotas limit these names.
	Constraints(limited []corev1.ResourceName, obj Object) error
	// Charges reports whether a write can increase the usage.
	Charges(w Write) bool
	// Frees reports whether an update from old to new can decrease the usage or change the scopes.
	Frees(new, old Object) bool
}

// Write is a write that may have to be charged.
type Write struct {
	Create      bool // a create; otherwise an update
	Subresource string
	Object, Old Object
}

// Cluster is what evaluators read of the rest of the cluster.
type Cluster struct {
	Now     func() time.Time
	Pod     func(namespace, name string) *corev1.Pod // nil if it does not exist
	Claims  func(namespace string) []*resourcev1.ResourceClaim
	Classes *DeviceClasses
}

// Evaluators holds the evaluators of all resources.
type Evaluators struct {
	byResource map[schema.GroupResource]Evaluator // of resources of which more than the number of objects can be limited, or under a second name
}

// New returns the evaluators of a cluster.
func New(c Cluster) *Evaluators {
	byResource := map[schema.GroupResource]Evaluator{
		pods: podEvaluator{now: c.Now}, services: serviceEvaluator{}, volumeClaims: volumeClaimEvaluator{}, deviceClaims: deviceClaimEvaluator{Cluster: c},
	}
	for _, alias := range [...]corev1.ResourceName{corev1.ResourceConfigMaps, corev1.ResourceQuotas, corev1.ResourceReplicationControllers, corev1.ResourceSecrets} {
		resource := corev1.Resource(string(alias))
		byResource[resource] = count{name: CountName(resource), alias: alias}
	}
	return &Evaluators{byResource}
}

// For returns the evaluator of a resource. Of most resources only the number of objects can be limited.
func (e *Evaluators) For(resource schema.GroupResource) Evaluator {
	if evaluator, ok := e.byResource[resource]; ok {
		return evaluator
	}
	return count{name: CountName(resource)}
}

// ignored are resources that quotas do not count: those that are never stored, and events.
var ignored = map[schema.GroupResource]bool{
	corev1.Resource("bindings"):                           true,
	corev1.Resource("componentstatuses"):                  true,
	authenticationv1.Resource("tokenreviews"):             true,
	authenticationv1.Resource("selfsubjectreviews"):       true,
	authorizationv1.Resource("subjectaccessreviews"):      true,
	authorizationv1.Resource("selfsubjectaccessreviews"):  true,
	authorizationv1.Resource("localsubjectaccessreviews"): true,
	authorizationv1.Resource("selfsubjectrulesreviews"):   true,
	corev1.Resource("events"):                             true,
	eventsv1.Resource("events"):                           true,
}

// Ignored reports whether quotas do not count a resource at all.
func Ignored(resource schema.GroupResource) bool { return ignored[resource] }

// CountName returns the name under which a quota limits the number of a resource's objects, whatever their state: count/deployments.apps.
func CountName(resource schema.GroupResource) corev1.ResourceName {
	if resource.Group == "" {
		return corev1.ResourceName("count/" + resource.Resource)
	}
	return corev1.ResourceName("count/" + resource.Resource + "." + resource.Group)
}

// plain has the methods of evaluators without scopes and constraints.
type plain struct{}

func (plain) InScope(corev1.ScopedResourceSelectorRequirement, Object) (bool, error) {
	return false, nil
}
func (plain) Constraints([]corev1.ResourceName, Object) error { return nil }
func (plain) Frees(_, _ Object) bool                          { return false }

// count is the evaluator of resources whose objects are only counted.
type count struct {
	plain
	name, alias corev1.ResourceName // alias is the name from before every resource could be counted; empty for most
}

func (c count) Counts(name corev1.ResourceName) bool { return name == c.name || name == c.alias }

func (c count) Usage(Object) corev1.ResourceList {
	used := corev1.ResourceList{c.name: one()}
	if c.alias != "" {
		used[c.alias] = one()
	}
	return used
}

func (count) Charges(w Write) bool { return w.Create && w.Subresource == "" }
