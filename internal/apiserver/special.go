package apiserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// specialKey names a resource, or a subresource of one, that does something no other does.
type specialKey struct {
	resource    schema.GroupResource
	subresource string
}

// special handles all requests for what it is registered under.
type special func(*request) error

// addSpecials connects what a few resources do beside the generic verbs.
func (s *Server) addSpecials() error {
	s.specials = map[specialKey]special{}
	namespaces := s.endpoint("", "v1", "namespaces").registry
	namespaces.Hooks = namespaceHooks()
	namespaces.Cache.Share() // admission asks for one with every create
	s.endpoint("scheduling.k8s.io", "v1", "priorityclasses").registry.Hooks.BeforeDelete = keepSystemPriorities
	add := func(group, plural, subresource string, handle special) {
		s.specials[specialKey{schema.GroupResource{Group: group, Resource: plural}, subresource}] = handle
	}
	add("", "pods", "binding", s.bind)
	add("", "bindings", "", s.bind)
	add("", "pods", "eviction", s.evict)
	add("", "componentstatuses", "", s.componentStatuses(s.components(schedulerHealth, controllerManagerHealth)))
	add("authentication.k8s.io", "selfsubjectreviews", "", s.reviews(s.reviewSelf))
	add("authentication.k8s.io", "tokenreviews", "", s.reviews(s.reviewToken))
	add("authorization.k8s.io", "subjectaccessreviews", "", s.reviews(s.reviewAccess))
	add("authorization.k8s.io", "localsubjectaccessreviews", "", s.reviews(s.reviewLocalAccess))
	add("authorization.k8s.io", "selfsubjectaccessreviews", "", s.reviews(s.reviewOwnAccess))
	add("authorization.k8s.io", "selfsubjectrulesreviews", "", s.reviews(s.reviewOwnRules))
	newConnector(s, nil).register(s.specials)
	return s.addServices()
}

// findNamespace is how admission looks namespaces up.
func (s *Server) findNamespace(ctx context.Context, name string, fresh bool) (*corev1.Namespace, error) {
	version := "0"
	if fresh {
		version = ""
	}
	registry := s.endpoint("", "v1", "namespaces").registry
	it, err := registry.Get(ctx, "", name, version)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	obj, err := registry.Cache.Object(it)
	if err != nil {
		return nil, err
	}
	return obj.(*corev1.Namespace), nil
}
