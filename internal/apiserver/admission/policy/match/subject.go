package match

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

var namespaces = corev1.Resource("namespaces")

// Subject is a write that is matched. It finds the namespace of the write once for all policies. It may be used by one goroutine at a time.
type Subject struct {
	*admission.Attributes
	// In is the namespace of the write: for one to a namespace it is the name of that.
	In string

	ctx        context.Context
	reader     objects.Reader
	equivalent []*catalog.Info // the other versions and groups that the resource is served in

	namespace      *corev1.Namespace
	namespaceErr   error
	namespaceKnown bool
}

// NewSubject returns the write as a subject. equivalent lists the other versions and groups in which its resource is served.
func NewSubject(ctx context.Context, a *admission.Attributes, reader objects.Reader, equivalent []*catalog.Info) *Subject {
	s := &Subject{Attributes: a, In: a.Namespace, ctx: ctx, reader: reader, equivalent: equivalent}
	if s.In == "" && a.Operation == admission.Create && a.Is(namespaces) {
		s.In = a.Subject()
	}
	return s
}

// NamespaceObject returns the namespace of the write; nil if it has none, or if it is to a namespace itself.
func (s *Subject) NamespaceObject() (*corev1.Namespace, error) {
	if s.In == "" || s.Info.GVK.Kind == "Namespace" && s.Info.GVK.Group == "" {
		return nil, nil
	}
	return s.getNamespace()
}

func (s *Subject) getNamespace() (*corev1.Namespace, error) {
	if s.namespaceKnown {
		return s.namespace, s.namespaceErr
	}
	s.namespaceKnown = true
	obj := s.reader.Get(namespaces, "", s.In)
	if obj == nil { // the cache may be behind
		if obj, s.namespaceErr = s.reader.Fresh(s.ctx, namespaces, "", s.In); s.namespaceErr != nil {
			return nil, s.namespaceErr
		}
	}
	s.namespace, _ = obj.(*corev1.Namespace)
	if s.namespace == nil {
		s.namespaceErr = apierrors.NewNotFound(namespaces, s.In)
	}
	return s.namespace, s.namespaceErr
}

// namespaceLabels returns the labels of the namespace of the write: the new ones if it creates or updates a namespace.
func (s *Subject) namespaceLabels() (map[string]string, error) {
	if s.Info.GVR.Resource == "namespaces" && s.Subresource == "" && s.Object != nil && (s.Operation == admission.Create || s.Operation == admission.Update) {
		return s.Object.GetLabels(), nil
	}
	namespace, err := s.getNamespace()
	if err != nil {
		return nil, err
	}
	return namespace.Labels, nil
}
