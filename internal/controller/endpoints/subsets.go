package endpoints

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"
	reconciler "k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/utils/dump"
	utilnet "k8s.io/utils/net"
)

// capacity is how many addresses Endpoints hold at most.
const capacity = 1000

// backend is a pod behind a Service.
type backend struct {
	address corev1.EndpointAddress
	ready   bool
	ports   []corev1.EndpointPort
}

// subsetsOf groups the pods behind a Service by the ports they offer. The result depends only on the pods, not on their order.
func subsetsOf(service *corev1.Service, pods []*corev1.Pod) []corev1.EndpointSubset {
	var backends []backend
	for _, pod := range pods {
		if b, ok := backendOf(service, pod); ok {
			backends = append(backends, b)
		}
	}
	slices.SortFunc(backends, func(a, b backend) int {
		return cmp.Or(cmp.Compare(a.address.IP, b.address.IP), cmp.Compare(a.address.TargetRef.UID, b.address.TargetRef.UID))
	})
	// offered holds the backends of each port; ports with the same backends form a subset. Port 0 means none.
	offered := map[corev1.EndpointPort][]byte{}
	offer := func(port corev1.EndpointPort, i int) {
		offered[port] = binary.AppendUvarint(offered[port], uint64(i))
	}
	for i, b := range backends {
		for _, port := range b.ports {
			offer(port, i)
		}
		if len(service.Spec.Ports) == 0 && service.Spec.ClusterIP == corev1.ClusterIPNone {
			offer(corev1.EndpointPort{}, i)
		}
	}
	subsets := map[string]*corev1.EndpointSubset{}
	for port, by := range offered {
		subset := subsets[string(by)]
		if subset == nil {
			subset = &corev1.EndpointSubset{}
			subsets[string(by)] = subset
			for len(by) > 0 {
				i, n := binary.Uvarint(by)
				by = by[n:]
				if b := &backends[i]; b.ready {
					subset.Addresses = append(subset.Addresses, b.address)
				} else {
					subset.NotReadyAddresses = append(subset.NotReadyAddresses, b.address)
				}
			}
		}
		if port.Port != 0 {
			subset.Ports = append(subset.Ports, port)
		}
	}
	var out []corev1.EndpointSubset
	for _, subset := range subsets {
		out = append(out, *subset)
	}
	return sorted(out)
}

func backendOf(service *corev1.Service, pod *corev1.Pod) (backend, bool) {
	if !endpointsliceutil.ShouldPodBeInEndpoints(pod, service.Spec.PublishNotReadyAddresses) {
		return backend{}, false
	}
	ip := addressOf(service, pod)
	if ip == "" {
		return backend{}, false
	}
	node := pod.Spec.NodeName
	b := backend{ready: service.Spec.PublishNotReadyAddresses || endpointsliceutil.IsPodReady(pod), address: corev1.EndpointAddress{IP: ip, NodeName: &node,
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}}
	if endpointsliceutil.ShouldSetHostname(pod, service) {
		b.address.Hostname = pod.Spec.Hostname
	}
	for i := range service.Spec.Ports {
		p := &service.Spec.Ports[i]
		if number, err := reconciler.FindPort(pod, p); err == nil {
			b.ports = append(b.ports, corev1.EndpointPort{Name: p.Name, Port: int32(number), Protocol: p.Protocol, AppProtocol: p.AppProtocol})
		}
	}
	return b, true
}

// addressOf returns a pod's IP in the Service's first family, or "".
func addressOf(service *corev1.Service, pod *corev1.Pod) string {
	ipv6 := false
	switch {
	case len(service.Spec.IPFamilies) > 0:
		ipv6 = service.Spec.IPFamilies[0] == corev1.IPv6Protocol
	case service.Spec.ClusterIP != "" && service.Spec.ClusterIP != corev1.ClusterIPNone:
		ipv6 = utilnet.IsIPv6String(service.Spec.ClusterIP)
	default:
		ipv6 = utilnet.IsIPv6String(pod.Status.PodIP)
	}
	for _, podIP := range pod.Status.PodIPs {
		if ip := utilnet.ParseIPSloppy(podIP.IP); utilnet.IsIPv6(ip) == ipv6 && ip != nil {
			return ip.String()
		}
	}
	return ""
}

// sorted sorts subsets and their ports by hash, the order that Kubernetes has always kept them in.
func sorted(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	for i := range subsets {
		byHash(subsets[i].Ports)
	}
	byHash(subsets)
	return subsets
}

func byHash[T any](list []T) {
	if len(list) > 1 {
		slices.SortFunc(list, func(a, b T) int { return bytes.Compare(hash(a), hash(b)) })
	}
}

func hash(v any) []byte {
	h := fnv.New128a()
	fmt.Fprintf(h, "%v", dump.ForHash(v))
	return h.Sum(nil)
}

// samePods compares pods by identity, not by resourceVersion.
var samePods = conversion.EqualitiesOrDie(func(a, b corev1.ObjectReference) bool {
	a.ResourceVersion, b.ResourceVersion = "", ""
	return a == b
})

// same reports whether Endpoints have the wanted addresses and ports, in any order.
func same(have, want []corev1.EndpointSubset) bool {
	if samePods.DeepEqual(have, want) {
		return true
	}
	if len(have) != len(want) {
		return false
	}
	copied := make([]corev1.EndpointSubset, len(have))
	for i := range have {
		copied[i] = *have[i].DeepCopy()
	}
	return samePods.DeepEqual(sorted(copied), want)
}

func count(subsets []corev1.EndpointSubset) (ready, notReady int) {
	for i := range subsets {
		ready += len(subsets[i].Addresses)
		notReady += len(subsets[i].NotReadyAddresses)
	}
	return ready, notReady
}

// truncate cuts subsets to capacity: each in proportion, and not ready addresses first.
func truncate(subsets []corev1.EndpointSubset) ([]corev1.EndpointSubset, bool) {
	ready, notReady := count(subsets)
	if ready+notReady <= capacity {
		return subsets, false
	}
	cutReady := ready > capacity
	room, of := capacity-ready, notReady
	if cutReady {
		room, of = capacity, ready
	}
	left := room
	for i := range subsets {
		s := &subsets[i]
		list := &s.NotReadyAddresses
		if cutReady {
			list, s.NotReadyAddresses = &s.Addresses, nil
		}
		share := int(math.Ceil(float64(len(*list)) / float64(of) * float64(room)))
		*list = (*list)[:min(share, left, len(*list))]
		left -= len(*list)
	}
	return subsets, true
}
