package client

import (
	"fmt"
	"net/http"
	"runtime"

	authenticationv1 "k8s.io/api/authentication/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Client reaches the API under one identity. Its parts are made once; all of it is safe for concurrent use.
type Client struct {
	component  string
	config     *rest.Config
	kubernetes kubernetes.Interface
	dynamic    dynamic.Interface
	metadata   metadata.Interface
	shared     *sharedReads // nil over HTTPS
	spans      spans
	http       *http.Client
}

// How fast a component may ask a server on the other side of a network, unless its configuration says so.
const (
	remoteQPS   = 50
	remoteBurst = 100
)

// ForConfig reaches a server over HTTPS. component is the name it shows itself under, such as "kube-scheduler": the server takes it as
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
	c.spans = &spanBatches{send: c.sendSpans}
	return c, nil
}

// ForKubeconfig reaches the server that a kubeconfig's current context names.
func ForKubeconfig(file, component string) (*Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("reading how to reach the API: %w", err)
	}
	return ForConfig(config, component)
}

// Identity is who a component in the server's process is.
type Identity struct {
	Component string // as ForConfig takes it
	Program   string // that it is a part of, if that goes by another name: the server takes it as the manager of the fields it writes
	User      string // "system:kube-scheduler"
	Groups    []string
}

// ForServer reaches the server in this process.
func ForServer(source Source, who Identity) (*Client, error) {
	view := source.As(&authenticationv1.UserInfo{Username: who.User, Groups: who.Groups})
	agent := userAgent(who.Component)
	if who.Program != "" {
		agent = userAgent(who.Program) + "/" + who.User // as kube-controller-manager's loops do
	}
	config := &rest.Config{
		Host:      "http://skiff.in.process", // never resolved
		Transport: direct{view},
		UserAgent: agent,
		QPS:       -1, // the server alone says when it is too much
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
		config.WarningHandlerWithContext = rest.NoWarnings{} // they are for people
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return causes{next} })
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("reaching the API: %w", err)
	}
	c := &Client{component: component, config: config, shared: shared, http: transport}
	if c.kubernetes, err = kubernetes.NewForConfigAndClient(config, transport); err != nil {
		return nil, err
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, transport); err != nil {
		return nil, err
	}
	if c.metadata, err = metadata.NewForConfigAndClient(config, transport); err != nil {
		return nil, err
	}
	return c, nil
}

func userAgent(component string) string {
	return fmt.Sprintf("%s/v1.37 (%s/%s) skiff", component, runtime.GOOS, runtime.GOARCH)
}

// Kubernetes is the typed client. What it returns belongs to the caller.
func (c *Client) Kubernetes() kubernetes.Interface { return c.kubernetes }

// Dynamic is the client for resources whose types are not known when a component is built.
func (c *Client) Dynamic() dynamic.Interface { return c.dynamic }

// Metadata is the client for the metadata of any resource.
func (c *Client) Metadata() metadata.Interface { return c.metadata }

// Config is for clients that this package does not make. It says where the server is and who is asking, and carries causes.
func (c *Client) Config() *rest.Config { return rest.CopyConfig(c.config) }
