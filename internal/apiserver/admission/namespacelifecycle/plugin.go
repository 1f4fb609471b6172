package namespacelifecycle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
)

// Namespaces returns a namespace, nil if it does not exist. fresh reads from the store instead of the cache.
type Namespaces func(ctx context.Context, name string, fresh bool) (*corev1.Namespace, error)

// New returns the plugin.
func New(find Namespaces) admission.Plugin {
	return &plugin{find: find, deleted: map[string]time.Time{}}
}

type plugin struct {
	find Namespaces

	mu      sync.Mutex
	deleted map[string]time.Time // when namespaces were recently deleted: the cache may not show it yet
}

// freshFor is how long a namespace is read from the store instead of the cache after a request to delete it.
const freshFor = 30 * time.Second

func (p *plugin) recordDeletion(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for other, at := range p.deleted {
		if now.Sub(at) > freshFor {
			delete(p.deleted, other)
		}
	}
	p.deleted[name] = now
}

func (p *plugin) recentlyDeleted(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.deleted[name]
	return known && time.Since(at) <= freshFor
}

func (*plugin) Name() string { return "NamespaceLifecycle" }

// Handles reports whether the write deletes a namespace or creates an object in one. Deletions must work in a terminating namespace, and
// access reviews may be about namespaces that do not exist.
func (*plugin) Handles(a *admission.Attributes) bool {
	if a.Is(namespaces) {
		return a.Operation == admission.Delete
	}
	return a.Operation == admission.Create && a.Namespace != "" && a.Info.GVR.Group != authorizationv1.GroupName
}

var (
	namespaces  = corev1.Resource("namespaces")
	undeletable = map[string]bool{metav1.NamespaceDefault: true, metav1.NamespaceSystem: true, metav1.NamespacePublic: true}
)

// Admit refuses the deletion of an undeletable namespace, and creations in namespaces that do not exist or are terminating.
func (p *plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	if a.Is(namespaces) {
		if undeletable[a.Name] {
			return a.Forbidden(errors.New("this namespace may not be deleted"))
		}
		p.recordDeletion(a.Name)
		return nil
	}
	namespace, err := p.find(ctx, a.Namespace, p.recentlyDeleted(a.Namespace))
	if err == nil && namespace == nil {
		namespace, err = p.find(ctx, a.Namespace, true)
	}
	if err != nil {
		return err
	}
	if namespace == nil {
		return apierrors.NewNotFound(namespaces, a.Namespace)
	}
	if namespace.Status.Phase != corev1.NamespaceTerminating {
		return nil
	}
	refusal := apierrors.NewForbidden(a.Info.GVR.GroupResource(), a.Subject(),
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", a.Namespace))
	refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", a.Namespace), Field: "metadata.namespace"})
	return refusal
}
