package apiserver

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fields "k8s.io/apimachinery/pkg/util/managedfields"

	"skiff/internal/apiserver/admission/policy"
	"skiff/internal/apiserver/managedfields"
	"skiff/internal/apiserver/registry"
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
	if it, err = l.end.Registry.Current(ctx, it); err != nil {
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
	var items []*cache.Item
	l.end.Registry.Cache.Snapshot().Ascend(prefix, "", func(it *cache.Item) bool {
		items = append(items, it)
		return true
	})
	ctx, cancel := context.WithTimeout(context.Background(), paramTimeout)
	defer cancel()
	if items, err = l.end.Registry.CurrentAll(ctx, items, registry.Converted); err != nil {
		return nil, err
	}
	for _, it := range items {
		if !selector.Matches(labels.Set(it.Labels)) {
			continue
		}
		obj, err := l.end.Served(it)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		found = append(found, obj)
	}
	return found, nil
}

// paramTimeout bounds the conversion of the parameters of a policy.
const paramTimeout = 10 * time.Second
