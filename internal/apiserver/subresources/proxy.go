package subresources

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/streaming/pkg/httpstream"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/verbs"
)

// proxy serves the proxy subresource: it forwards requests to the URL that locate returns.
func (c *Connector) proxy(locate func(rq *verbs.Request) (*url.URL, http.RoundTripper, error)) verbs.Handler {
	return func(rq *verbs.Request) error {
		options, path := proxyOptions(rq)
		if err := admitConnect(rq, options); err != nil {
			return err
		}
		if rq.Route.Plural == "nodes" && *path != proxiedPath(rq) { // a webhook has sent the request elsewhere: see mayRunInContainer
			if err := authorizeVerb(rq, "create"); err != nil {
				return err
			}
		}
		location, transport, err := locate(rq)
		if err != nil {
			return err
		}
		location.Path = *path
		c.forward(rq, location, transport, true, false)
		return nil
	}
}

// proxiedPath returns the part of the request's path after proxy, with its slashes.
func proxiedPath(rq *verbs.Request) string {
	segments := 6 // of /api/v1/nodes/NAME/proxy
	if rq.Route.Namespace != "" {
		segments = 8
	}
	parts := strings.SplitN(rq.URL.Path, "/", segments+1)
	if len(parts) <= segments {
		return ""
	}
	return utilnet.JoinPreservingTrailingSlash("/", parts[segments])
}

// podLocation returns the URL of a pod, which is named as NAME, NAME:PORT or SCHEME:NAME:PORT; the default is its first port.
func (c *Connector) podLocation(rq *verbs.Request) (*url.URL, http.RoundTripper, error) {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(rq.Route.Name)
	if !valid {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("invalid pod request %q", rq.Route.Name))
	}
	p, err := c.pod(rq, name)
	if err != nil {
		return nil, nil, err
	}
	for _, container := range p.Spec.Containers {
		if port == "" && len(container.Ports) > 0 {
			port = strconv.Itoa(int(container.Ports[0].ContainerPort))
		}
	}
	ip := p.Status.PodIP
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	if parsed := netutils.ParseIPSloppy(ip); parsed == nil || !parsed.IsGlobalUnicast() {
		return nil, nil, errAddressNotAllowed
	}
	location := &url.URL{Scheme: scheme, Host: net.JoinHostPort(ip, port)}
	if port == "" {
		location.Host = strings.TrimSuffix(location.Host, ":")
	}
	return location, c.pods, nil
}

// errAddressNotAllowed refuses addresses such as loopback: what listens there on this machine is not for clients.
var errAddressNotAllowed = apierrors.NewBadRequest("address not allowed")

// nodeLocation returns the URL of a node's kubelet, or of another port of the node.
func (c *Connector) nodeLocation(rq *verbs.Request) (*url.URL, http.RoundTripper, error) {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(rq.Route.Name)
	if !valid {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("invalid node request %q", rq.Route.Name))
	}
	k, err := c.kubelet(rq, name)
	if err != nil {
		return nil, nil, err
	}
	toKubelet := port == "" || port == k.port
	if toKubelet && mayRunInContainer(rq) {
		if err := authorizeVerb(rq, "create"); err != nil {
			return nil, nil, err
		}
	}
	if err := checkProxyHost(rq.Ctx, k.host); err != nil {
		return nil, nil, err
	}
	if toKubelet {
		kubelets, err := c.currentKubeletTransports()
		if err != nil {
			return nil, nil, err
		}
		return k.url("", nil), kubelets.verified, nil
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort(k.host, port)}, c.pods, nil
}

// mayRunInContainer reports whether a request for a kubelet may run something in a container or reach its ports. A WebSocket begins with GET, so
// that the permission to get nodes/proxy is not enough for it; the kubelet cannot check, since it sees this server and not its client.
func mayRunInContainer(rq *verbs.Request) bool {
	root, _, _ := strings.Cut(strings.TrimPrefix(proxiedPath(rq), "/"), "/")
	switch strings.ToLower(root) {
	case "exec", "attach", "portforward", "run", "cri":
		return true
	}
	return httpstream.IsUpgradeRequest(rq.Request)
}

// checkProxyHost refuses a host with an address that clients must not reach through this server.
func checkProxyHost(ctx context.Context, host string) error {
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	for _, address := range found {
		if !address.IP.IsGlobalUnicast() {
			return errAddressNotAllowed
		}
	}
	return nil
}

// ServiceLocation returns the URL of a ready pod of a service, for the port that the client names or the one without a name.
func (c *Connector) ServiceLocation(rq *verbs.Request) (*url.URL, http.RoundTripper, error) {
	scheme, name, port, valid := utilnet.SplitSchemeNamePort(rq.Route.Name)
	if !valid {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("invalid service request %q", rq.Route.Name))
	}
	if number, err := strconv.ParseInt(port, 10, 64); err == nil {
		if port, err = c.portName(rq, name, number); err != nil {
			return nil, nil, err
		}
	}
	host, err := c.endpointOf(rq, name, port)
	if err != nil {
		return nil, nil, err
	}
	return &url.URL{Scheme: scheme, Host: host}, c.pods, nil
}

// portName returns the name of the port of a service that has the given number.
func (c *Connector) portName(rq *verbs.Request, service string, number int64) (string, error) {
	services := c.API.Endpoint("", "v1", "services").Registry
	it, err := services.Get(rq.Ctx, rq.Route.Namespace, service, "")
	if err != nil {
		return "", err
	}
	obj, err := services.Decode(it)
	if err != nil {
		return "", err
	}
	for _, port := range obj.(*corev1.Service).Spec.Ports {
		if int64(port.Port) == number {
			return port.Name, nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, service))
}

// endpointOf returns HOST:PORT of a random ready pod of a service.
func (c *Connector) endpointOf(rq *verbs.Request, service, port string) (string, error) {
	slicesOf := c.API.Endpoint("discovery.k8s.io", "v1", "endpointslices").Registry
	selector, err := slicesOf.NewSelector(slicesOf.Info, rq.Route.Namespace, discoveryv1.LabelServiceName+"="+service, "")
	if err != nil {
		return "", err
	}
	page, err := slicesOf.List(rq.Ctx, registry.List{Selector: selector, ResourceVersion: "0"})
	if err != nil {
		return "", err
	}
	var preferred, others []string
	for _, it := range page.Items {
		obj, err := slicesOf.Decode(it)
		if err != nil {
			return "", err
		}
		slice := obj.(*discoveryv1.EndpointSlice)
		hosts := c.hosts(rq, slice, port)
		if slice.AddressType == c.AddressType {
			preferred = append(preferred, hosts...)
		} else {
			others = append(others, hosts...)
		}
	}
	for _, hosts := range [][]string{preferred, others} {
		if len(hosts) > 0 {
			return hosts[rand.IntN(len(hosts))], nil
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", service))
}

// hosts returns the ready endpoints of a slice that serve a port and whose address is that of the pod they refer to.
func (c *Connector) hosts(rq *verbs.Request, slice *discoveryv1.EndpointSlice, port string) []string {
	var hosts []string
	for _, p := range slice.Ports {
		if p.Name == nil || *p.Name != port || p.Port == nil {
			continue
		}
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) && c.isPodAddress(rq, &e) {
				hosts = append(hosts, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return hosts
}

// isPodAddress reports whether the address of an endpoint is one of the pod that it refers to.
func (c *Connector) isPodAddress(rq *verbs.Request, e *discoveryv1.Endpoint) bool {
	if e.TargetRef == nil || e.TargetRef.Namespace != rq.Route.Namespace || len(e.Addresses) == 0 {
		return false
	}
	p, err := c.pod(rq, e.TargetRef.Name)
	return err == nil && slices.ContainsFunc(p.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == e.Addresses[0] })
}
