package endpointslicemirroring

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	endpointsliceutil "k8s.io/endpointslice/util"
	utilnet "k8s.io/utils/net"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

// maxPerSubset is how many addresses of a subset are mirrored, so that a slice can hold them all.
const maxPerSubset = 1000

// group is what one slice holds: addresses of one family that offer the same ports.
type group struct {
	family discoveryv1.AddressType
	ports  endpointsliceutil.PortMapKey
}

// decide returns the slices that should exist for Endpoints, which are nil if there should be none.
func decide(e *corev1.Endpoints, existing []*discoveryv1.EndpointSlice) controller.Decision {
	slices.SortFunc(existing, func(a, b *discoveryv1.EndpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	var wanted []*discoveryv1.EndpointSlice
	var events []controller.Action
	if e != nil {
		wanted, events = mirror(e)
	}
	// Each wanted slice replaces one with the same ports, or else one of its family that is not needed otherwise, or else is created.
	left := slices.Clone(existing)
	take := func(fits func(*discoveryv1.EndpointSlice) bool) *discoveryv1.EndpointSlice {
		i := slices.IndexFunc(left, fits)
		if i < 0 {
			return nil
		}
		found := left[i]
		left = slices.Delete(left, i, i+1)
		return found
	}
	matches := make([]*discoveryv1.EndpointSlice, len(wanted))
	for i, w := range wanted {
		matches[i] = take(func(s *discoveryv1.EndpointSlice) bool { return groupOf(s) == groupOf(w) })
	}
	var creates, updates, deletes []controller.Action
	for i, w := range wanted {
		if matches[i] == nil {
			matches[i] = take(func(s *discoveryv1.EndpointSlice) bool { return s.AddressType == w.AddressType })
		}
		switch match := matches[i]; {
		case match == nil && e.DeletionTimestamp == nil:
			creates = append(creates, controller.Create(w))
		case match != nil && !same(match, w):
			w.Name, w.GenerateName, w.ResourceVersion = match.Name, "", match.ResourceVersion
			updates = append(updates, controller.Update(w))
		}
	}
	for _, slice := range left {
		deletes = append(deletes, controller.Delete(slice, metav1.DeleteOptions{}))
	}
	actions := slices.Concat(events, creates, updates, deletes)
	return controller.Decision{Actions: actions, Then: func(err error) controller.Decision {
		if err == nil || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return controller.Nothing // it would fail until the namespace is gone
		}
		return controller.Decision{Err: err}
	}}
}

func groupOf(s *discoveryv1.EndpointSlice) group {
	return group{s.AddressType, endpointsliceutil.NewPortMapKey(slices.Clone(s.Ports))} // NewPortMapKey sorts them
}

func same(have, want *discoveryv1.EndpointSlice) bool {
	return maps.Equal(have.Labels, want.Labels) && maps.Equal(have.Annotations, want.Annotations) && groupOf(have) == groupOf(want) &&
		metav1.IsControlledBy(have, &metav1.ObjectMeta{UID: want.OwnerReferences[0].UID}) && equality.Semantic.DeepEqual(have.Endpoints, want.Endpoints)
}

// mirror returns the slices for Endpoints, and Events about addresses that are left out.
func mirror(e *corev1.Endpoints) (made []*discoveryv1.EndpointSlice, events []controller.Action) {
	byGroup := map[group]*discoveryv1.EndpointSlice{}
	invalid, skipped := 0, 0
	for i := range e.Subsets {
		subset, added := &e.Subsets[i], 0
		into := map[discoveryv1.AddressType]*discoveryv1.EndpointSlice{}
		add := func(addresses []corev1.EndpointAddress, ready bool) {
			for j := range addresses {
				family, endpoint := endpointOf(&addresses[j], ready)
				switch {
				case added == maxPerSubset:
					skipped++
				case endpoint == nil:
					invalid++
				default:
					added++
					if into[family] == nil {
						slice := newSlice(e, family, subset.Ports)
						key := groupOf(slice)
						if byGroup[key] == nil {
							byGroup[key] = slice
							made = append(made, slice)
						}
						into[family] = byGroup[key]
					}
					into[family].Endpoints = append(into[family].Endpoints, *endpoint)
				}
			}
		}
		add(subset.Addresses, true)
		add(subset.NotReadyAddresses, false)
	}
	if invalid > 0 {
		events = append(events, controller.Event(e, corev1.EventTypeWarning, "InvalidIPAddress", "Skipped %d invalid IP addresses when mirroring to EndpointSlices", invalid))
	}
	if skipped > 0 {
		events = append(events, controller.Event(e, corev1.EventTypeWarning, "TooManyAddressesToMirror",
			"A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped", maxPerSubset, skipped+invalid))
	}
	return made, events
}

func newSlice(e *corev1.Endpoints, family discoveryv1.AddressType, ports []corev1.EndpointPort) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: family, ObjectMeta: metav1.ObjectMeta{
		Namespace: e.Namespace, GenerateName: owned.Prefix(e.Name), Labels: map[string]string{}, Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(e, corev1.SchemeGroupVersion.WithKind("Endpoints"))},
	}}
	maps.Copy(s.Labels, e.Labels)
	s.Labels[discoveryv1.LabelServiceName], s.Labels[discoveryv1.LabelManagedBy] = e.Name, managedBy
	maps.Copy(s.Annotations, e.Annotations)
	delete(s.Annotations, corev1.EndpointsLastChangeTriggerTime)
	delete(s.Annotations, corev1.LastAppliedConfigAnnotation)
	for i := range ports {
		p := ports[i].DeepCopy()
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.Port, Protocol: &p.Protocol, AppProtocol: p.AppProtocol})
	}
	return s
}

// endpointOf returns the endpoint of an address, or nil if it is not an IP.
func endpointOf(a *corev1.EndpointAddress, ready bool) (discoveryv1.AddressType, *discoveryv1.Endpoint) {
	ip := utilnet.ParseIPSloppy(a.IP)
	if ip == nil {
		return "", nil
	}
	a = a.DeepCopy()
	e := &discoveryv1.Endpoint{Addresses: []string{ip.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, TargetRef: a.TargetRef, NodeName: a.NodeName}
	if a.Hostname != "" {
		e.Hostname = &a.Hostname
	}
	if ip.To4() == nil {
		return discoveryv1.AddressTypeIPv6, e
	}
	return discoveryv1.AddressTypeIPv4, e
}
