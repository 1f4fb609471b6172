package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
	"skiff/internal/upgrade"
)

// connector takes clients to what runs on nodes: to kubelets, for exec, attach, port forwarding and logs, and to pods, services and
// nodes by proxy.
type connector struct {
	s *Server
	// config is what kubelets are shown and how theirs is checked, right now. Without it nothing is shown or checked.
	config func() (*tls.Config, error)
	// pods reaches pods and services, which have no certificates of this cluster.
	pods *http.Transport

	mu       sync.Mutex
	kubelets *kubeletTransports
}

// kubeletTransports reach kubelets with one certificate of this server's.
type kubeletTransports struct {
	config *tls.Config
	// verified trusts those that have a certificate of the cluster, unverified all.
	verified, unverified *http.Transport
}

func newConnector(s *Server, config func() (*tls.Config, error)) *connector {
	if config == nil {
		nothing := &tls.Config{InsecureSkipVerify: true}
		config = func() (*tls.Config, error) { return nothing, nil }
	}
	c := &connector{s: s, config: config, pods: backendTransport(&tls.Config{InsecureSkipVerify: true}, s.opts.Dial)}
	context.AfterFunc(s.stopping, func() {
		c.pods.CloseIdleConnections()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.kubelets.close()
	})
	return c
}

// toKubelets returns what reaches kubelets. Certificates are renewed while the server runs; connections that are made later go by the new ones.
func (c *connector) toKubelets() (*kubeletTransports, error) {
	config, err := c.config()
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
	c.kubelets = &kubeletTransports{config: config, verified: backendTransport(config, c.s.opts.Dial), unverified: backendTransport(unverified, c.s.opts.Dial)}
	return c.kubelets, nil
}

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

// backendTransport speaks HTTP/1.1, which alone can be upgraded.
func backendTransport(config *tls.Config, dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{DialContext: upgrade.Dial(dial), TLSClientConfig: config, TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 8, DisableCompression: true}
}

// register adds the subresources that connect.
func (c *connector) register(specials map[specialKey]special) {
	pods, nodes, services := corev1.Resource("pods"), corev1.Resource("nodes"), corev1.Resource("services")
	specials[specialKey{pods, "log"}] = c.log
	specials[specialKey{pods, "exec"}] = c.stream("exec", streamParameters)
	specials[specialKey{pods, "attach"}] = c.stream("attach", streamParameters)
	specials[specialKey{pods, "portforward"}] = c.stream("portForward", portParameters)
	specials[specialKey{pods, "proxy"}] = c.proxy(c.podLocation)
	specials[specialKey{nodes, "proxy"}] = c.proxy(c.nodeLocation)
	specials[specialKey{services, "proxy"}] = c.proxy(c.serviceLocation)
}

// stream handles exec, attach and port forwarding: it joins the client's connection with one to the kubelet, once both have changed
// from HTTP to a protocol of streams.
func (c *connector) stream(kubeletPath string, parameters func(url.Values) url.Values) special {
	return func(rq *Request) error {
		if rq.Route.Rest != "" {
			return response.ErrNotFound
		}
		if rq.Route.Verb != "create" && rq.Route.Verb != "get" {
			return response.ErrMethodNotAllowed
		}
		if err := rq.mayAlso("create"); err != nil {
			return err
		}
		if err := rq.admitConnect(); err != nil {
			return err
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
		kubelets, err := c.toKubelets()
		if err != nil {
			return err
		}
		c.forward(rq, location, kubelets.verified, false, true)
		return nil
	}
}

// streamParameters are those of exec and attach, under the kubelet's names.
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

func portParameters(query url.Values) url.Values {
	out := url.Values{}
	if ports := query["ports"]; len(ports) > 0 {
		out.Set("port", strings.Join(ports, ","))
	}
	return out
}

// mayAlso refuses a request whose sender may not do the same with another verb: browsers begin WebSockets with GET, which must not
// be a way around the right to create.
func (rq *Request) mayAlso(verb string) error {
	if rq.Route.Verb == verb {
		return nil
	}
	rt := rq.Route
	decision, reason, err := rq.server.identity.authorizer.Authorize(rq.Ctx, &authz.Attributes{User: rq.User, Verb: verb, Resource: true, Group: rt.Group,
		Version: rt.Version, Plural: rt.Plural, Subresource: rt.Subresource, Namespace: rt.Namespace, Name: rt.Name, Path: rq.URL.Path})
	if err != nil {
		return err
	}
	if decision != authz.Allow {
		return apierrors.NewForbidden(rq.Endpoint.Info.GVR.GroupResource(), rt.Name, errors.New(reason))
	}
	return nil
}

func (rq *Request) admitConnect() error {
	attributes := rq.admission(admission.Connect, nil, nil, false)
	if err := rq.server.admission.Admit(rq.Ctx, attributes, rq.Trace.Stage); err != nil {
		return err
	}
	return rq.server.admission.Validate(rq.Ctx, attributes, rq.Trace.Stage)
}

// forward lets the backend answer. wrap rewrites links in its pages; upgrade wants the connection to change its protocol.
func (c *connector) forward(rq *Request, location *url.URL, transport http.RoundTripper, wrap, upgraded bool) {
	handler := proxy.NewUpgradeAwareHandler(location, transport, wrap, upgraded, responder{c.s})
	handler.ServeHTTP(upgrade.Hijackable(rq.W), rq.Request.WithContext(rq.Ctx))
}

// responder answers with what went wrong on the way to a backend.
type responder struct{ s *Server }

func (r responder) Error(w http.ResponseWriter, req *http.Request, err error) {
	response.Fail(w, req, err)
}

// pod returns a pod of the request's namespace.
func (c *connector) pod(rq *Request, name string) (*corev1.Pod, error) {
	pods := c.s.endpoint("", "v1", "pods").Registry
	it, err := pods.Get(rq.Ctx, rq.Route.Namespace, name, "")
	if err != nil {
		return nil, err
	}
	obj, err := pods.Object(it)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Pod), nil
}

// containerOf finds the container a client means; one need not be named if there is only one.
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

// kubelet is where a node's kubelet listens.
type kubelet struct{ host, port string }

func (k kubelet) url(path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(k.host, k.port), Path: path, RawQuery: query.Encode()}
}

// DefaultKubeletAddresses is which of a node's addresses is tried: the first there is. Names come last, as nothing in the cluster resolves them
// for this server.
func DefaultKubeletAddresses() []corev1.NodeAddressType {
	return []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeExternalDNS}
}

const kubeletPort = 10250

func (c *connector) kubelet(rq *Request, node string) (kubelet, error) {
	nodes := c.s.endpoint("", "v1", "nodes").Registry
	it, err := nodes.Get(rq.Ctx, "", node, "0")
	if err != nil {
		if apierrors.IsNotFound(err) {
			// Upstream names the resource of the request here.
			return kubelet{}, apierrors.NewNotFound(rq.Endpoint.Info.GVR.GroupResource(), node)
		}
		return kubelet{}, err
	}
	obj, err := nodes.Object(it)
	if err != nil {
		return kubelet{}, err
	}
	status := obj.(*corev1.Node).Status
	port := status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		port = kubeletPort
	}
	for _, kind := range c.s.opts.KubeletAddresses {
		for _, address := range status.Addresses {
			if address.Type == kind {
				return kubelet{address.Address, strconv.Itoa(int(port))}, nil
			}
		}
	}
	return kubelet{}, fmt.Errorf("no preferred addresses found; known addresses: %v", status.Addresses)
}
