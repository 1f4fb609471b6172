package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/objects"
)

var (
	services       = corev1.Resource("services")
	endpointSlices = schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}
)

const (
	// resolvedFor is how long the ready endpoints of a service are remembered.
	resolvedFor = 500 * time.Millisecond
	// maxResolved bounds the services that are remembered.
	maxResolved = 1024
)

// Resolver resolves services by their EndpointSlices.
type Resolver struct {
	objects objects.Reader

	mu    sync.Mutex
	known map[servicePort]resolved
}

type servicePort struct {
	namespace, name string
	port            int32
}

type resolved struct {
	hosts []string // HOST:PORT
	until time.Time
}

// NewResolver returns a resolver over the server's objects.
func NewResolver(r objects.Reader) *Resolver {
	return &Resolver{objects: r, known: map[servicePort]resolved{}}
}

// Resolve returns HOST:PORT of a random ready endpoint of a service, or its external name.
func (r *Resolver) Resolve(_ context.Context, namespace, name string, port int32) (string, error) {
	key, now := servicePort{namespace, name, port}, time.Now()
	r.mu.Lock()
	found, ok := r.known[key]
	r.mu.Unlock()
	if !ok || now.After(found.until) {
		hosts, err := r.lookup(namespace, name, port)
		if err != nil {
			return "", err
		}
		found = resolved{hosts, now.Add(resolvedFor)}
		r.mu.Lock()
		if len(r.known) >= maxResolved {
			clear(r.known)
		}
		r.known[key] = found
		r.mu.Unlock()
	}
	return found.hosts[rand.IntN(len(found.hosts))], nil
}

// lookup returns the addresses of a service; at least one.
func (r *Resolver) lookup(namespace, name string, port int32) ([]string, error) {
	service, _ := r.objects.Get(services, namespace, name).(*corev1.Service)
	if service == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "service"}, name)
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		return []string{net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(port)))}, nil
	}
	var portName *string
	for _, p := range service.Spec.Ports {
		if p.Port == port {
			portName = &p.Name
		}
	}
	if portName == nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", port, name))
	}
	var hosts []string
	for _, obj := range r.objects.List(endpointSlices, namespace) {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok && slice.Labels[discoveryv1.LabelServiceName] == name {
			hosts = append(hosts, readyHosts(slice, *portName)...)
		}
	}
	if len(hosts) == 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	return hosts, nil
}

// readyHosts returns the ready endpoints of a slice for a port.
func readyHosts(slice *discoveryv1.EndpointSlice, port string) (hosts []string) {
	for _, p := range slice.Ports {
		if ptr.Deref(p.Name, "") != port || p.Port == nil {
			continue
		}
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) && len(e.Addresses) > 0 {
				hosts = append(hosts, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
			}
		}
	}
	return hosts
}
