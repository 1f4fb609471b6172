package client

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Client accesses the API under one identity. It is safe for concurrent use.
type Client struct {
	component  string
	config     *rest.Config
	kubernetes kubernetes.Interface
	dynamic    dynamic.Interface
	metadata   metadata.Interface
	shared     *sharedReads // nil over HTTPS
	spans      spanSink
	http       *http.Client
}

// The default rate limit of a client over HTTPS, unless its configuration sets one.
const (
	remoteQPS   = 50
	remoteBurst = 100
)

// ForConfig returns a client of a server over HTTPS. component is the name in its user agent, such as "kube-scheduler": the server takes it as
// the manager of the fields it writes.
func ForConfig(config *rest.Config, component string) (*Client, error) {
	config = rest.CopyConfig(config)
	if config.UserAgent == "" {
		config.UserAgent = userAgent(component)
	}
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS, config.Burst = remoteQPS, remoteBurst
	}
	c, err := newClient(config, component, nil)
	if err != nil {
		return nil, err
	}
	c.spans = &spanBatcher{send: c.sendSpans}
	return c, nil
}

// ForKubeconfig returns a client of the server in a kubeconfig's current context.
func ForKubeconfig(file, component string) (*Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig %s: %w", file, err)
	}
	return ForConfig(config, component)
}

// Identity identifies a component in the server's process.
type Identity struct {
	Component string // the name of the component, as in ForConfig
	Program   string // the program that the component is part of, if it has another name: the server takes it as the manager of the fields it writes
	User      string // "system:kube-scheduler"
	Groups    []string
}

// ForServer returns a client of the server in this process.
func ForServer(source Source, who Identity) (*Client, error) {
	view := source.As(&authenticationv1.UserInfo{Username: who.User, Groups: who.Groups})
	agent := userAgent(who.Component)
	if who.Program != "" {
		agent = userAgent(who.Program) + "/" + who.User // as kube-controller-manager's loops do
	}
	config := &rest.Config{
		Host:      "http://skiff.in.process", // never resolved
		Transport: directTransport{view},
		UserAgent: agent,
		QPS:       -1, // no limit: the server's flow control applies
	}
	c, err := newClient(config, who.Component, newSharedReads(view))
	if err != nil {
		return nil, err
	}
	c.spans = view
	return c, nil
}

func newClient(config *rest.Config, component string, shared *sharedReads) (*Client, error) {
	config.ContentType = apiruntime.ContentTypeProtobuf
	config.AcceptContentTypes = apiruntime.ContentTypeProtobuf + "," + apiruntime.ContentTypeJSON
	if config.WarningHandler == nil && config.WarningHandlerWithContext == nil {
		config.WarningHandlerWithContext = rest.NoWarnings{} // warnings are for people
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return causes{next} })
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create the transport to the API: %w", err)
	}
	c := &Client{component: component, config: config, shared: shared, http: transport}
	if c.kubernetes, err = kubernetes.NewForConfigAndClient(config, transport); err != nil {
		return nil, err
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, transport); err != nil {
		return nil, err
	}
	all := *transport
	all.Transport = uninitialized{transport.Transport}
	if c.metadata, err = metadata.NewForConfigAndClient(config, &all); err != nil {
		return nil, err
	}
	return c, nil
}

// causeUninitialized is the cause of the error of a creation whose object is there, and waits for its initializers.
const causeUninitialized metav1.CauseType = "Uninitialized"

// Uninitialized returns the name and uid of the object that a creation has created although it failed: nobody sees the object before its initializers have
// acted. ok is false for other errors.
func Uninitialized(err error) (name string, uid types.UID, ok bool) {
	var status apierrors.APIStatus
	if !apierrors.HasStatusCause(err, causeUninitialized) || !errors.As(err, &status) {
		return "", "", false
	}
	details := status.Status().Details
	return details.Name, details.UID, true
}

// uninitialized asks for objects that still wait for their initializers, too.
type uninitialized struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (u uninitialized) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet {
		r = r.Clone(r.Context())
		query := r.URL.Query()
		query.Set("includeUninitialized", "true")
		r.URL.RawQuery = query.Encode()
	}
	return u.RoundTripper.RoundTrip(r)
}

func userAgent(component string) string {
	return fmt.Sprintf("%s/v1.37 (%s/%s) skiff", component, runtime.GOOS, runtime.GOARCH)
}

// Kubernetes returns the typed client. The objects that it returns belong to the caller.
func (c *Client) Kubernetes() kubernetes.Interface { return c.kubernetes }

// Dynamic returns the client for resources whose types are not known when a component is built.
func (c *Client) Dynamic() dynamic.Interface { return c.dynamic }

// Metadata returns the client for the metadata of any resource. It is for those who must know of every object there is, so it reads objects that still wait
// for their initializers, too.
func (c *Client) Metadata() metadata.Interface { return c.metadata }

// Config returns the configuration for clients that this package does not make. It has the server's address and the client's identity, and sends causes.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }
