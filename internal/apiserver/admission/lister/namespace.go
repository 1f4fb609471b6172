package lister

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/objects"
)

// Namespace returns a namespace from the cache, or from the store if the cache does not have it: it may be new. It returns NotFound if there is none.
func Namespace(ctx context.Context, r objects.Reader, name string) (*corev1.Namespace, error) {
	resource := corev1.Resource("namespaces")
	if namespace, ok := r.Get(resource, "", name).(*corev1.Namespace); ok {
		return namespace, nil
	}
	obj, err := r.Fresh(ctx, resource, "", name)
	if err != nil {
		return nil, err
	}
	namespace, ok := obj.(*corev1.Namespace)
	if !ok {
		return nil, fmt.Errorf("namespace %s is a %T", name, obj)
	}
	return namespace, nil
}
