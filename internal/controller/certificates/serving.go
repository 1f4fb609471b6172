package certificates

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"

	"skiff/internal/controller"
)

// NewServingApprover returns the loop that approves kubelets' serving certificates. Its keys are CertificateSigningRequests. Upstream has no such loop, so
// it has a service account of its own, and an administrator who wants to approve these requests turns it off.
func NewServingApprover(deps controller.Deps) controller.Loop {
	requests, nodes := deps.Informers.Certificates().V1().CertificateSigningRequests(), deps.Informers.Core().V1().Nodes()
	endpoints := deps.Informers.Discovery().V1().EndpointSlices()
	a := &servingApprover{requests: requests.Lister(), nodes: nodes.Lister(), endpoints: endpoints.Lister(),
		reserved: newReserved(deps.Config.ClusterDomain, deps.Config.APIServerHosts, deps.Config.ClusterCIDRs, deps.Config.ServiceCIDRs)}
	return overRequests(requests, controller.Loop{
		Name: "kubelet-serving-approving-controller", QueueName: "kubelet_serving", Workers: 1,
		Watch: []controller.Watch{
			{Informer: nodes.Informer(), Keys: a.waiting},
			{Informer: endpoints.Informer(), Keys: noKeys},
		},
	}, a.decide)
}

type servingApprover struct {
	requests  certificateslisters.CertificateSigningRequestLister
	nodes     corelisters.NodeLister
	endpoints discoverylisters.EndpointSliceLister
	reserved  reserved
}

// noKeys is the Watch.Keys of objects that are read but whose changes concern no request.
func noKeys(_, _ metav1.Object) []controller.Key { return nil }

// waiting returns the requests of a node that may be decided now that its addresses are known.
func (a *servingApprover) waiting(before, after metav1.Object) []controller.Key {
	node, ok := after.(*corev1.Node)
	if !ok {
		return nil
	}
	if old, ok := before.(*corev1.Node); ok && slices.Equal(old.Status.Addresses, node.Status.Addresses) {
		return nil
	}
	return undecided(a.requests, certificatesv1.KubeletServingSignerName, nodePrefix+node.Name)
}

// decide approves a kubelet's serving certificate if the node itself asks for it, for names and addresses that its Node has and neither another Node
// nor the API server has. Until the Node has addresses, the request waits.
func (a *servingApprover) decide(csr *certificatesv1.CertificateSigningRequest, now time.Time) controller.Decision {
	request, err := pendingRequest(csr, certificatesv1.KubeletServingSignerName)
	if request == nil {
		return controller.Decision{Err: err}
	}
	name := strings.TrimPrefix(request.Subject.CommonName, nodePrefix)
	if csr.Spec.Username != request.Subject.CommonName || !slices.Contains(csr.Spec.Groups, nodesGroup) {
		return controller.Nothing // an administrator may decide about it
	}
	node, err := a.nodes.Get(name)
	if err != nil {
		return controller.Nothing // the node has not registered yet
	}
	if why := a.reserved.nodeName(name); why != "" {
		return deny(csr, now, why)
	}
	for _, host := range request.DNSNames {
		if host != name {
			return controller.Nothing // a node names its further names itself: an administrator may decide about it
		}
		if slices.Contains(a.reserved.hosts, host) {
			return deny(csr, now, fmt.Sprintf("%s is a name of the API, so node %s cannot serve there", host, name))
		}
	}
	nodeIPs, servers := nodeAddresses(node), apiServers(a.endpoints)
	for _, ip := range request.IPAddresses {
		host := ip.String()
		if !slices.Contains(nodeIPs, host) {
			return controller.Nothing // its kubelet has not reported it yet, or an administrator decides about it
		}
		if slices.Contains(servers, host) {
			return deny(csr, now, fmt.Sprintf("%s is an address of the API, so node %s cannot serve there", host, name))
		}
		if why := a.reserved.address(host); why != "" {
			return deny(csr, now, fmt.Sprintf("%s %s, so node %s cannot serve there", host, why, name))
		}
		if other := a.ownerOf(host, name); other != "" {
			return deny(csr, now, fmt.Sprintf("%s is an address of node %s too, so node %s cannot have a certificate for it", host, other, name))
		}
	}
	return approve(csr, now, "Auto approving kubelet serving certificate: its names and addresses are the node's own.")
}

// nodeAddresses returns the IP addresses of a node, as certificates write them.
func nodeAddresses(node *corev1.Node) (out []string) {
	for _, address := range node.Status.Addresses {
		if ip := net.ParseIP(address.Address); ip != nil {
			out = append(out, ip.String())
		}
	}
	return out
}

// ownerOf returns another node that has an address, or "".
func (a *servingApprover) ownerOf(host, but string) string {
	all, _ := a.nodes.List(labels.Everything()) // a lister over a cache cannot fail
	for _, node := range all {
		if node.Name != but && slices.Contains(nodeAddresses(node), host) {
			return node.Name
		}
	}
	return ""
}

// apiServers returns the addresses of the API servers.
func apiServers(lister discoverylisters.EndpointSliceLister) (addresses []string) {
	all, _ := lister.EndpointSlices(metav1.NamespaceDefault).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: "kubernetes"})) // it cannot fail
	for _, slice := range all {
		for _, endpoint := range slice.Endpoints {
			addresses = append(addresses, endpoint.Addresses...)
		}
	}
	return addresses
}
