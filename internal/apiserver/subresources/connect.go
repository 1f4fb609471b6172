package subresources

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"

	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/upgrade"
)

// Connector connects clients with what runs on nodes: with kubelets, for exec, attach, port forwarding and logs, and with pods, services and
// nodes by proxy.
type Connector struct {
	Options
	// pods is the transport to pods and services. Their certificates are not verified: they are not of this cluster.
	pods *http.Transport

	mu       sync.Mutex
	kubelets *kubeletTransports
}

// kubeletTransports are the transports to kubelets with one client certificate.
type kubeletTransports struct {
	config *tls.Config
	// verified requires kubelets to have a certificate of the cluster, unverified does not.
	verified, unverified *http.Transport
}

// NewConnector returns a connector. It closes its idle connections when the server stops.
func NewConnector(o Options) *Connector {
	if o.KubeletTLS == nil {
		insecure := &tls.Config{InsecureSkipVerify: true}
		o.KubeletTLS = func() (*tls.Config, error) { return insecure, nil }
	}
	c := &Connector{Options: o, pods: backendTransport(&tls.Config{InsecureSkipVerify: true}, o.Dial)}
	context.AfterFunc(o.API.Stopping, func() {
		c.pods.CloseIdleConnections()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.kubelets.close()
	})
	return c
}

// currentKubeletTransports returns the transports to kubelets. Certificates are renewed while the server runs: new ones replace the transports.
func (c *Connector) currentKubeletTransports() (*kubeletTransports, error) {
	config, err := c.KubeletTLS()
	if err != nil {
		return nil, fmt.Errorf("this server's own certificate for kubelets: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kubelets != nil && sameCredentials(c.kubelets.config, config) {
		return c.kubelets, nil
	}
	c.kubelets.close()
	unverified := config.Clone()
	unverified.InsecureSkipVerify, unverified.VerifyConnection, unverified.VerifyPeerCertificate = true, nil, nil
	c.kubelets = &kubeletTransports{config: config, verified: backendTransport(config, c.Dial), unverified: backendTransport(unverified, c.Dial)}
	return c.kubelets, nil
}

// sameCredentials reports whether two configurations have the same client certificate and authorities.
func sameCredentials(a, b *tls.Config) bool {
	return a == b || a.RootCAs == b.RootCAs && slices.EqualFunc(a.Certificates, b.Certificates, func(x, y tls.Certificate) bool {
		return slices.EqualFunc(x.Certificate, y.Certificate, bytes.Equal)
	})
}

func (k *kubeletTransports) close() {
	if k != nil {
		k.verified.CloseIdleConnections()
		k.unverified.CloseIdleConnections()
	}
}

// backendTransport returns a transport for HTTP/1.1, whose connections can be upgraded.
func backendTransport(config *tls.Config, dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{DialContext: upgrade.Dial(dial), TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 8, DisableCompression: true}
}

// stream serves exec, attach and port forwarding: it joins the client's connection with one to the kubelet, once both have been upgraded from HTTP
// to a protocol of streams.
func (c *Connector) stream(kubeletPath string, parameters func(url.Values) url.Values) verbs.Handler {
	return func(rq *verbs.Request) error {
		if rq.Route.Rest != "" {
			return response.ErrNotFound
		}
		if rq.Route.Verb != "create" && rq.Route.Verb != "get" {
			return response.ErrMethodNotAllowed
		}
		if err := authorizeVerb(rq, "create"); err != nil {
			return err
		}
		options := streamOptions(rq.Route.Subresource, rq.Query)
		asked := options.DeepCopyObject()
		if err := admitConnect(rq, options); err != nil {
			return err
		}
		if !reflect.DeepEqual(asked, options) {
			rq.Query = parametersOf(options)
		}
		p, err := c.pod(rq, rq.Route.Name)
		if err != nil {
			return err
		}
		path := []string{"", kubeletPath, p.Namespace, p.Name}
		if rq.Route.Subresource != "portforward" {
			container, err := containerOf(p, rq.Query.Get("container"))
			if err != nil {
				return err
			}
			path = append(path, container)
		}
		if p.Spec.NodeName == "" {
			return apierrors.NewBadRequest(fmt.Sprintf("pod %s does not have a host assigned", p.Name))
		}
		kubelet, err := c.kubelet(rq, p.Spec.NodeName)
		if err != nil {
			return err
		}
		location := kubelet.url(strings.Join(path, "/"), parameters(rq.Query))
		kubelets, err := c.currentKubeletTransports()
		if err != nil {
			return err
		}
		c.forward(rq, location, kubelets.verified, false, true)
		return nil
	}
}

// streamParameters returns the parameters of exec and attach under the kubelet's names.
func streamParameters(query url.Values) url.Values {
	out := url.Values{}
	for _, p := range [][2]string{{"stdin", "input"}, {"stdout", "output"}, {"stderr", "error"}, {"tty", "tty"}} {
		if request.ParseFlag(query.Get(p[0])) {
			out.Set(p[1], "1")
		}
	}
	if command := query["command"]; len(command) > 0 {
		out["command"] = command
	}
	return out
}

// portParameters returns the parameters of port forwarding under the kubelet's names.
func portParameters(query url.Values) url.Values {
	out := url.Values{}
	if ports := query["ports"]; len(ports) > 0 {
		out.Set("port", strings.Join(ports, ","))
	}
	return out
}

// authorizeVerb refuses a request whose user may not do the same with another verb: WebSockets begin with GET, which must not be a way around the
// permission to create.
func authorizeVerb(rq *verbs.Request, verb string) error {
	if rq.Route.Verb == verb {
		return nil
	}
	rt := rq.Route
	decision, reason, err := rq.API.Authorizer.Authorize(rq.Ctx, &authz.Attributes{User: rq.User, Verb: verb, Resource: true, Group: rt.Group,
		Version: rt.Version, Plural: rt.Plural, Subresource: rt.Subresource, Namespace: rt.Namespace, Name: rt.Name, Path: rq.URL.Path})
	if err != nil {
		return err
	}
	if decision != authz.Allow {
		return apierrors.NewForbidden(rq.Endpoint.Info.GVR.GroupResource(), rt.Name, errors.New(reason))
	}
	return nil
}

// forward has the backend at location answer the request. wrap rewrites links in its pages; upgraded requires the connection to be upgraded.
func (c *Connector) forward(rq *verbs.Request, location *url.URL, transport http.RoundTripper, wrap, upgraded bool) {
	handler := proxy.NewUpgradeAwareHandler(location, transport, wrap, upgraded, responder{})
	handler.ServeHTTP(upgrade.Hijackable(rq.W), rq.Request.WithContext(rq.Ctx))
}

// responder answers with the errors of the proxy.
type responder struct{}

func (responder) Error(w http.ResponseWriter, req *http.Request, err error) {
	response.Fail(w, req, err)
}

// pod returns a pod of the request's namespace.
func (c *Connector) pod(rq *verbs.Request, name string) (*corev1.Pod, error) {
	pods := c.API.Endpoint("", "v1", "pods").Registry
	it, err := pods.Get(rq.Ctx, rq.Route.Namespace, name, "")
	if err != nil {
		return nil, err
	}
	obj, err := pods.Decode(it)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

// containerOf returns the container of a pod that a client names; it need not name one if there is only one.
func containerOf(p *corev1.Pod, name string) (string, error) {
	if name == "" && len(p.Spec.Containers) == 1 {
		return p.Spec.Containers[0].Name, nil
	}
	var names []string
	for _, c := range p.Spec.InitContainers {
		names = append(names, c.Name)
	}
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	for _, c := range p.Spec.EphemeralContainers {
		names = append(names, c.Name)
	}
	switch {
	case name == "":
		return "", apierrors.NewBadRequest(fmt.Sprintf("a container name must be specified for pod %s, choose one of: %s", p.Name, names))
	case !slices.Contains(names, name):
		return "", apierrors.NewBadRequest(fmt.Sprintf("container %s is not valid for pod %s", name, p.Name))
	}
	return name, nil
}

// kubelet is the address at which a node's kubelet listens.
type kubelet struct{ host, port string }

func (k kubelet) url(path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(k.host, k.port), Path: path, RawQuery: query.Encode()}
}

const kubeletPort = 10250

// kubelet returns the address of a node's kubelet.
func (c *Connector) kubelet(rq *verbs.Request, node string) (kubelet, error) {
	k, err := c.kubeletOf(rq.Ctx, node)
	if apierrors.IsNotFound(err) {
		// As upstream, which names the resource of the request here.
		return kubelet{}, apierrors.NewNotFound(rq.Endpoint.Info.GVR.GroupResource(), node)
	}
	return k, err
}

func (c *Connector) kubeletOf(ctx context.Context, node string) (kubelet, error) {
	nodes := c.API.Endpoint("", "v1", "nodes").Registry
	it, err := nodes.Get(ctx, "", node, "0")
	if err != nil {
		return kubelet{}, err
	}
	obj, err := nodes.Decode(it)
	if err != nil {
		return kubelet{}, err
	}
	status := obj.(*corev1.Node).Status
	port := status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		port = kubeletPort
	}
	for _, kind := range c.KubeletAddresses {
		for _, address := range status.Addresses {
			if address.Type == kind {
				return kubelet{address.Address, strconv.Itoa(int(port))}, nil
			}
		}
	}
	return kubelet{}, fmt.Errorf("no preferred addresses found; known addresses: %v", status.Addresses)
}
