package aggregation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog"
)

var (
	services       = corev1.Resource("services")
	endpointSlices = discoveryv1.Resource("endpointslices")
)

// reasonFailedDiscovery is the reason of the condition of a server that does not answer.
const reasonFailedDiscovery = "FailedDiscoveryCheck"

// attempts is how many requests check a server at once, each to any of its endpoints. One that succeeds is enough.
const attempts = 5

// condition returns the condition Available.
func condition(status apiregistrationv1.ConditionStatus, reason, message string) apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: status, Reason: reason, Message: message}
}

func localCondition() apiregistrationv1.APIServiceCondition {
	return condition(apiregistrationv1.ConditionTrue, "Local", "Local APIServices are always available")
}

// check returns the condition of a server: whether its Service has endpoints, and one of them answers.
func (b *Backend) check(ctx context.Context) apiregistrationv1.APIServiceCondition {
	key := b.service()
	service, _ := b.owner.Objects.Get(services, key.namespace, key.name).(*corev1.Service)
	var slicesOf []*discoveryv1.EndpointSlice
	for _, obj := range b.owner.Objects.List(endpointSlices, key.namespace) {
		if slice, ok := obj.(*discoveryv1.EndpointSlice); ok && slice.Labels[discoveryv1.LabelServiceName] == key.name {
			slicesOf = append(slicesOf, slice)
		}
	}
	if problem := serviceProblem(key, b.port(), service, slicesOf); problem != nil {
		return *problem
	}
	if err := b.ask(ctx); err != nil {
		return condition(apiregistrationv1.ConditionFalse, reasonFailedDiscovery, err.Error())
	}
	return condition(apiregistrationv1.ConditionTrue, "Passed", "all checks passed")
}

// serviceProblem returns the condition of a server whose Service leads nowhere; nil if it leads somewhere. service is nil if there is none.
func serviceProblem(key serviceKey, port int32, service *corev1.Service, endpoints []*discoveryv1.EndpointSlice) *apiregistrationv1.APIServiceCondition {
	problem := func(reason, format string, args ...any) *apiregistrationv1.APIServiceCondition {
		c := condition(apiregistrationv1.ConditionFalse, reason, fmt.Sprintf(format, args...))
		return &c
	}
	if service == nil {
		return problem("ServiceNotFound", "service/%s in %q is not present", key.name, key.namespace)
	}
	if service.Spec.Type != corev1.ServiceTypeClusterIP {
		return nil
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if i < 0 {
		return problem("ServicePortError", "service/%s in %q is not listening on port %d", key.name, key.namespace, port)
	}
	if len(endpoints) == 0 {
		return problem("EndpointsNotFound", "cannot find endpointslices for service/%s in %q", key.name, key.namespace)
	}
	name := service.Spec.Ports[i].Name
	if !slices.ContainsFunc(endpoints, func(slice *discoveryv1.EndpointSlice) bool { return hasEndpoint(slice, name) }) {
		return problem("MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", key.name, key.namespace, name)
	}
	return nil
}

// hasEndpoint reports whether a slice has a ready endpoint and a port of the name.
func hasEndpoint(slice *discoveryv1.EndpointSlice, port string) bool {
	return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) }) &&
		slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return p.Name != nil && *p.Name == port && p.Port != nil })
}

// ask asks a server for its group version, several times at once. It returns the last error unless one succeeds.
func (b *Backend) ask(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // one success is enough
	results := make(chan error, attempts)
	for range attempts {
		go func() { results <- b.askOnce(ctx) }() // ends with ctx; the channel takes every result
	}
	var last error
	for range attempts {
		err := <-results
		if err == nil {
			return nil
		}
		last = err
	}
	b.close() // what was open before may lead nowhere
	return last
}

func (b *Backend) askOnce(ctx context.Context) error {
	got, err := b.fetch(ctx, "/"+b.path(), "", nil, -1)
	switch {
	case err != nil:
		return err
	case got.code < http.StatusOK || got.code >= http.StatusMultipleChoices:
		return &fetchError{got.url, fmt.Errorf("bad status from %v: %d", got.url, got.code)}
	}
	return nil
}

func isAvailable(s *apiregistrationv1.APIService) bool {
	return availability(s.Status.Conditions).Status == apiregistrationv1.ConditionTrue
}

// availability returns the condition Available; it is Unknown if there is none.
func availability(conditions []apiregistrationv1.APIServiceCondition) apiregistrationv1.APIServiceCondition {
	for _, c := range conditions {
		if c.Type == apiregistrationv1.Available {
			return c
		}
	}
	return condition(apiregistrationv1.ConditionUnknown, "", "")
}

// withCondition returns conditions with the condition Available replaced. The time of the last transition changes with the status. Conditions of others stay.
func withCondition(conditions []apiregistrationv1.APIServiceCondition, c apiregistrationv1.APIServiceCondition, now time.Time) []apiregistrationv1.APIServiceCondition {
	c.LastTransitionTime = metav1.NewTime(now)
	i := slices.IndexFunc(conditions, func(old apiregistrationv1.APIServiceCondition) bool { return old.Type == c.Type })
	if i < 0 {
		return append(slices.Clone(conditions), c)
	}
	if conditions[i].Status == c.Status {
		c.LastTransitionTime = conditions[i].LastTransitionTime
	}
	next := slices.Clone(conditions)
	next[i] = c
	return next
}

// errReplaced ends a write of the status of an APIService that was deleted and created again, errUnchanged one that would change nothing.
var (
	errReplaced  = errors.New("another APIService has taken the name")
	errUnchanged = errors.New("the condition is there already")
)

// sameCondition reports whether two conditions differ in no more than the time of their last transition.
func sameCondition(a, b apiregistrationv1.APIServiceCondition) bool {
	a.LastTransitionTime = b.LastTransitionTime
	return a == b
}

// setAvailable writes the condition Available of an APIService if it has changed.
func (a *Aggregation) setAvailable(ctx context.Context, s *apiregistrationv1.APIService, c apiregistrationv1.APIServiceCondition) error {
	available, was := c.Status == apiregistrationv1.ConditionTrue, availability(s.Status.Conditions)
	a.metrics.set(s.Name, available)
	if sameCondition(was, c) {
		return nil
	}
	err := a.Objects.Update(ctx, apiServices, "status", "", s.Name, func(obj catalog.Object) error {
		newest := obj.(*apiregistrationv1.APIService)
		if newest.UID != s.UID {
			return errReplaced
		}
		if was = availability(newest.Status.Conditions); sameCondition(was, c) {
			return errUnchanged
		}
		newest.Status.Conditions = withCondition(newest.Status.Conditions, c, time.Now())
		return nil
	})
	if errors.Is(err, errReplaced) || errors.Is(err, errUnchanged) || isGone(err) {
		return nil // if it has changed, it is queued again
	}
	if err != nil {
		return err
	}
	switch wasAvailable := was.Status == apiregistrationv1.ConditionTrue; {
	case !available && (wasAvailable || was.Reason != c.Reason):
		a.Log.Warn("an aggregated API server is unavailable", "apiservice", s.Name, "reason", c.Reason, "message", c.Message)
	case available && !wasAvailable && s.Spec.Service != nil:
		a.Log.Info("an aggregated API server is available", "apiservice", s.Name)
	}
	if was.Status == apiregistrationv1.ConditionTrue && !available {
		a.metrics.lost(s.Name, c.Reason)
	}
	return nil
}
