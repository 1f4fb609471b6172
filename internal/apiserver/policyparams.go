package apiserver

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fields "k8s.io/apimachinery/pkg/util/managedfields"

	"skiff/internal/apiserver/admission/policy"
	"skiff/internal/apiserver/managedfields"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/cache"
)

// policyOptions returns what admission policies need to know about custom resources: how to read those that are parameters, and how to merge them.
func (s *Server) policyOptions() policy.Options {
	return policy.Options{
		Params: func(gvk schema.GroupVersionKind) (policy.Lister, error) {
			if end := s.customEndpoint(gvk); end != nil {
				return customLister{end}, nil
			}
			return nil, nil
		},
		Types: func(gvk schema.GroupVersionKind) fields.TypeConverter {
			if end := s.customEndpoint(gvk); end != nil {
				return managedfields.CustomTypes(end.Info)
			}
			return nil
		},
	}
}

// customEndpoint returns the endpoint that serves the objects of a custom kind; nil if there is none.
func (s *Server) customEndpoint(gvk schema.GroupVersionKind) *verbs.Endpoint {
	served := s.api.Served()
	for _, info := range served.Infos {
		if info.JSONOnly && info.GVK == gvk {
			return served.Endpoints[info.GVR]
		}
	}
	return nil
}

// customLister reads the objects of a custom resource.
type customLister struct{ end *verbs.Endpoint }

// Namespaced reports whether objects are in namespaces.
func (l customLister) Namespaced() bool { return l.end.Info.Namespaced }

// Get returns an object, or a NotFound error.
func (l customLister) Get(ctx context.Context, namespace, name string) (runtime.Object, error) {
	it, err := l.end.Registry.Get(ctx, namespace, name, "")
	if err != nil {
		return nil, err
	}
	return l.end.Served(it)
}

// List returns the objects of a namespace, or of the cluster, that a selector selects.
func (l customLister) List(namespace string, selector labels.Selector) (found []runtime.Object, err error) {
	prefix := ""
	if namespace != "" && l.end.Info.Namespaced {
		prefix = namespace + "/"
	}
	l.end.Registry.Cache.Snapshot().Ascend(prefix, "", func(it *cache.Item) bool {
		if !selector.Matches(labels.Set(it.Labels)) {
			return true
		}
		var obj runtime.Object
		if obj, err = l.end.Served(it); err != nil {
			err = apierrors.NewInternalError(err)
			return false
		}
		found = append(found, obj)
		return true
	})
	return found, err
}
