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
	s.endpoint("", "v1", "namespaces").registry.Hooks = namespaceHooks()
	s.endpoint("scheduling.k8s.io", "v1", "priorityclasses").registry.Hooks.BeforeDelete = keepSystemPriorities
	return nil
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
