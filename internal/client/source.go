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
	// As returns the server as one user reaches it.
	As(user *authenticationv1.UserInfo) View
}

// View is the server in the hands of one user.
type View interface {
	// ServeHTTP takes a request of that user through the whole handler chain.
	http.Handler

	// Kinds are the resources that List and Watch serve, with the kinds of their objects.
	Kinds() map[schema.GroupVersionResource]schema.GroupVersionKind

	// List returns objects that are shared with everybody who reads them this way: nobody may change them. The user must be allowed to
	// list them. Options mean what they mean over HTTP.
	List(ctx context.Context, what Shared, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error)

	// Watch streams changes, with objects that are shared likewise, until ctx ends or it is stopped. While a watch runs, the server keeps
	// the resource's objects decoded, unless only metadata is asked for. It has no need to end such a watch after a time, so it does not
	// heed timeoutSeconds.
	Watch(ctx context.Context, what Shared, opts metav1.ListOptions) (watch.Interface, error)

	// PutSpan keeps a span of the user's work. It does not wait.
	PutSpan(journey.Span)
}

// Shared says what to read without copying.
type Shared struct {
	Resource     schema.GroupVersionResource
	Namespace    string // all if empty
	MetadataOnly bool   // objects are *metav1.PartialObjectMetadata
}
