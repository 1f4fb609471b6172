package quota

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var deviceClaims = resourcev1.Resource("resourceclaims")

const deviceClaimCount corev1.ResourceName = "count/resourceclaims.resource.k8s.io"

type deviceClaimEvaluator struct {
	plain
	Cluster
}

func (deviceClaimEvaluator) Charges(w Write) bool { return w.Subresource == "" }

// Counts reports whether the name limits claims, devices of a class, or an extended resource that a device class offers.
func (e deviceClaimEvaluator) Counts(name corev1.ResourceName) bool {
	if name == deviceClaimCount || strings.HasSuffix(string(name), corev1.ResourceClaimsPerClass) {
		return true
	}
	return isExtended(name) && e.Classes.Offer(corev1.ResourceName(strings.TrimPrefix(string(name), corev1.DefaultResourceRequestsPrefix)))
}

// Usage returns the maximum number of devices of each class that can be allocated for a claim.
func (e deviceClaimEvaluator) Usage(obj Object) corev1.ResourceList {
	c, ok := obj.(*resourcev1.ResourceClaim)
	if !ok {
		return nil
	}
	devices := map[string]int{}
	for i := range c.Spec.Devices.Requests {
		for class, n := range mostDevices(&c.Spec.Devices.Requests[i]) {
			devices[class] += n
		}
	}
	used := corev1.ResourceList{deviceClaimCount: one()}
	charged := e.chargedToPod(c)
	for class, n := range devices {
		used[corev1.ResourceName(class+corev1.ResourceClaimsPerClass)] = number(n)
		addRest(used, corev1.ResourceName(corev1.ResourceImplicitExtendedClaimsPerClass+class), n, charged)
		if extended := e.Classes.ExtendedResource(class); extended != "" {
			addRest(used, corev1.ResourceName(corev1.DefaultResourceRequestsPrefix+extended), n, charged)
		}
	}
	return used
}

// addRest adds the amount of an extended resource that the pod is not already charged for.
func addRest(used corev1.ResourceList, name corev1.ResourceName, n int, charged corev1.ResourceList) {
	value := number(n)
	if already, ok := charged[name]; ok {
		value.Sub(already)
	}
	if value.Sign() > 0 {
		used[name] = value
	}
}

// mostDevices returns the maximum number of devices for a request, by class. Among alternatives, the maximum per class counts.
func mostDevices(r *resourcev1.DeviceRequest) map[string]int {
	most := map[string]int{}
	add := func(class string, mode resourcev1.DeviceAllocationMode, n int64) {
		switch mode {
		case resourcev1.DeviceAllocationModeExactCount:
			most[class] = max(most[class], int(n))
		case resourcev1.DeviceAllocationModeAll:
			most[class] = max(most[class], resourcev1.AllocationResultsMaxSize)
		}
	}
	if len(r.FirstAvailable) > 0 {
		for i := range r.FirstAvailable {
			add(r.FirstAvailable[i].DeviceClassName, r.FirstAvailable[i].AllocationMode, r.FirstAvailable[i].Count)
		}
	} else if r.Exactly != nil {
		add(r.Exactly.DeviceClassName, r.Exactly.AllocationMode, r.Exactly.Count)
	}
	return most
}

// chargedToPod returns what the pod that a claim was created for is charged for: the scheduler creates claims for the extended resources that
// a pod requests, and these must not count twice. It returns nil if the pod does not refer to the claim.
func (e deviceClaimEvaluator) chargedToPod(c *resourcev1.ResourceClaim) corev1.ResourceList {
	owner := podOf(c)
	if owner == nil {
		return nil
	}
	p := e.Pod(c.Namespace, owner.Name)
	if p == nil || p.UID != owner.UID {
		return nil
	}
	if status := p.Status.ExtendedResourceClaimStatus; status != nil && status.ResourceClaimName != c.Name || status == nil && !e.isFirst(c, owner) {
		return nil
	}
	return podEvaluator{now: e.Now}.Usage(p)
}

// podOf returns the pod for whose extended resources a claim was created, nil if there is none.
func podOf(c *resourcev1.ResourceClaim) *metav1.OwnerReference {
	if c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" {
		return nil
	}
	owner := metav1.GetControllerOfNoCopy(c)
	if owner == nil || owner.Kind != "Pod" || owner.APIVersion != "v1" {
		return nil
	}
	return owner
}

// isFirst reports whether no earlier claim was created for the same pod.
func (e deviceClaimEvaluator) isFirst(c *resourcev1.ResourceClaim, owner *metav1.OwnerReference) bool {
	for _, other := range e.Claims(c.Namespace) {
		if o := podOf(other); o == nil || o.UID != owner.UID {
			continue
		}
		age := other.CreationTimestamp.Compare(c.CreationTimestamp.Time)
		if age < 0 || age == 0 && other.Name < c.Name {
			return false
		}
	}
	return true
}
