package hollow

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// kubelet is one hollow node.
type kubelet struct {
	number int
	name   string

	mu         sync.Mutex
	stopped    bool
	registered bool              // it has registered once in this process
	transport  http.RoundTripper // nil until it is needed
	uid        types.UID         // of its Node; empty while there is none
	cidrs      []netip.Prefix    // its pod CIDRs
	lease      string            // the resourceVersion of its lease; empty if that is not known
	pods       map[types.UID]*podState
	hosts      hostNumbers
}

// podState is what a node knows of a pod beyond what the API says.
type podState struct {
	host    uint16    // the number of its address; 0 is none
	since   time.Time // when its status was reported
	version uint64    // resourceVersion of the pod with that status
}

func newKubelet(number int, name string) *kubelet {
	return &kubelet{number: number, name: name, pods: map[types.UID]*podState{}}
}

func (k *kubelet) setStopped(stopped bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stopped = stopped
}

func (k *kubelet) isStopped() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stopped
}

// setRegistered notes that the node has registered, and reports whether it is the first time in this process.
func (k *kubelet) setRegistered() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.registered
	k.registered = true
	return !before
}

// hasLease reports whether there is a lease to renew: the node is registered and not stopped.
func (k *kubelet) hasLease() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease != "" && !k.stopped
}

// pod returns the state of a pod, which it creates if there is none. The caller must hold the lock.
func (k *kubelet) pod(uid types.UID) *podState {
	r := k.pods[uid]
	if r == nil {
		r = &podState{}
		k.pods[uid] = r
	}
	return r
}

// api holds the clients that all nodes share. A client for each would take more memory than all else about a node; so there is one, and each node has only
// a transport, which carries its identity.
type api struct {
	once         sync.Once
	err          error
	core         coreclient.CoreV1Interface
	coordination coordinationclient.CoordinationV1Interface
}

// transportKey is the context key of the transport of the node that makes a request.
type transportKey struct{}

// perNode sends a request over the transport of the node that makes it.
type perNode struct{}

func (perNode) RoundTrip(req *http.Request) (*http.Response, error) {
	return req.Context().Value(transportKey{}).(http.RoundTripper).RoundTrip(req)
}

// as returns a context for requests of a node.
func (n *Nodes) as(ctx context.Context, k *kubelet) (context.Context, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.transport == nil {
		c, err := n.options.Client(k.name)
		if err != nil {
			return nil, err
		}
		config := c.Config()
		if k.transport, err = rest.TransportFor(config); err != nil {
			return nil, err
		}
		if n.api.once.Do(func() { n.api.err = n.api.connect(config) }); n.api.err != nil {
			return nil, n.api.err
		}
	}
	return context.WithValue(ctx, transportKey{}, k.transport), nil
}

func (a *api) connect(to *rest.Config) error {
	shared := &rest.Config{Host: to.Host, APIPath: to.APIPath, Transport: perNode{}, QPS: -1, UserAgent: to.UserAgent, WarningHandlerWithContext: rest.NoWarnings{}}
	shared.ContentType = runtime.ContentTypeProtobuf
	shared.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	core, err := coreclient.NewForConfig(shared)
	if err != nil {
		return err
	}
	coordination, err := coordinationclient.NewForConfig(shared)
	if err != nil {
		return err
	}
	a.core, a.coordination = core, coordination
	return nil
}
