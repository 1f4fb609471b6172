package client

import (
	"context"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"skiff/internal/journey"
)

// Source is an API server in this process.
type Source interface {
	// As returns access to the server for one user.
	As(user *authenticationv1.UserInfo) View
}

// View is one user's access to an API server in this process.
type View interface {
	// ServeHTTP serves a request of that user with the whole handler chain.
	http.Handler

	// Kinds returns the resources that List and Watch serve, with the kinds of their objects.
	Kinds() map[schema.GroupVersionResource]schema.GroupVersionKind

	// Shares reports whether List and Watch serve a resource now: custom resources come and go.
	Shares(schema.GroupVersionResource) bool

	// List returns objects that are shared with all other readers: nobody may change them. The user must be allowed to
	// list them. Options mean the same as over HTTP.
	List(ctx context.Context, what Shared, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error)

	// Watch streams changes with shared objects until ctx ends or the watch is stopped. While a watch runs, the server keeps
	// the resource's objects decoded, unless only metadata is requested. It ignores timeoutSeconds, because the server has no need to end
	// such a watch.
	Watch(ctx context.Context, what Shared, opts metav1.ListOptions) (watch.Interface, error)

	// PutSpan records a span of the user's work. It does not block.
	PutSpan(journey.Span)
}

// Shared selects the objects to read without copying.
type Shared struct {
	Resource     schema.GroupVersionResource
	Namespace    string // all namespaces if empty
	MetadataOnly bool   // whether objects are *metav1.PartialObjectMetadata, of all objects: those that still wait for their initializers, too
}
