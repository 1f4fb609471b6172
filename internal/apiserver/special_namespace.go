package apiserver

import (
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/registry"
	"skiff/internal/catalog"
)

// A namespace that is deleted is Terminating until its spec.finalizers, which stand for its content, are gone too.
func namespaceHooks() registry.Hooks {
	return registry.Hooks{
		Held: func(obj catalog.Object) bool { return len(obj.(*corev1.Namespace).Spec.Finalizers) > 0 },
		MarkDeleting: func(obj catalog.Object) {
			obj.(*corev1.Namespace).Status.Phase = corev1.NamespaceTerminating
			obj.SetDeletionGracePeriodSeconds(nil)
		},
	}
}
