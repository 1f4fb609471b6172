package servicecidr

import (
	"net/netip"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	networkinglisters "k8s.io/client-go/listers/networking/v1"

	"skiff/internal/controller"
)

// loopName is the loop's name, and the field manager of what it applies.
const loopName = "service-cidr-controller"

// managedBy is the managed-by label of IPAddresses that API servers created for Services.
const managedBy = "ipallocator.k8s.io"

// New returns the loop. Its keys are ServiceCIDRs.
func New(deps controller.Deps) controller.Loop {
	cidrs, addresses := deps.Informers.Networking().V1().ServiceCIDRs(), deps.Informers.Networking().V1().IPAddresses()
	find, allocated := cidrs.Lister(), addresses.Lister()
	return controller.Loop{
		Name: loopName, ServiceAccount: "service-cidrs-controller", QueueName: "ipaddresses",
		Watch: []controller.Watch{
			{Informer: cidrs.Informer(), Type: &networkingv1.ServiceCIDR{}, Keys: func(before, after metav1.Object) []controller.Key { return concerned(find, before, after) }},
			{Informer: addresses.Informer(), Type: &networkingv1.IPAddress{}, Keys: func(before, after metav1.Object) []controller.Key { return containing(find, before, after) }},
		},
		Reconcile: func(key controller.Key, now time.Time) controller.Decision {
			cidr, err := find.Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			seen := observed{cidr: cidr}
			if cidr.DeletionTimestamp != nil { // the others do not matter otherwise
				if seen.all, err = find.List(labels.Everything()); err == nil {
					seen.addresses, err = allocated.List(labels.SelectorFromSet(labels.Set{networkingv1.LabelManagedBy: managedBy}))
				}
				if err != nil {
					return controller.Decision{Err: err}
				}
			}
			return decide(seen, now)
		},
	}
}

// concerned returns the ServiceCIDRs that a change of one concerns: itself, and if it was created or deleted those that overlap with it, whose deletion
// may wait for it.
func concerned(find networkinglisters.ServiceCIDRLister, before, after metav1.Object) []controller.Key {
	changed := after
	if changed == nil {
		changed = before
	}
	keys := []controller.Key{controller.KeyOf(changed)}
	if before != nil && after != nil {
		return keys
	}
	all, _ := find.List(labels.Everything()) // a cache does not fail
	for _, other := range all {
		if other.Name != changed.GetName() && overlap(other, changed.(*networkingv1.ServiceCIDR)) {
			keys = append(keys, controller.KeyOf(other))
		}
	}
	return keys
}

func overlap(a, b *networkingv1.ServiceCIDR) bool {
	for _, x := range prefixes(a) {
		for _, y := range prefixes(b) {
			if x.Overlaps(y) {
				return true
			}
		}
	}
	return false
}

// containing returns the ServiceCIDRs that contain an address that was created or deleted.
func containing(find networkinglisters.ServiceCIDRLister, before, after metav1.Object) (keys []controller.Key) {
	changed := after
	if changed == nil {
		changed = before
	}
	if before != nil && after != nil || changed.GetLabels()[networkingv1.LabelManagedBy] != managedBy {
		return nil
	}
	ip, err := netip.ParseAddr(changed.GetName())
	if err != nil {
		return nil
	}
	all, _ := find.List(labels.Everything()) // a cache does not fail
	for _, cidr := range all {
		if containsAddress(cidr, ip) {
			keys = append(keys, controller.KeyOf(cidr))
		}
	}
	return keys
}
