package client

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CauseHeader names the version of an object that a request is made because of: "<uid>/<resourceVersion>".
const CauseHeader = "Skiff-Cause"

type causeKey struct{}

// Because marks what is done under a context as done because of an object, in the version at hand. Every request sent with the context
// tells the server so.
func Because(ctx context.Context, obj metav1.Object) context.Context {
	if obj == nil || obj.GetUID() == "" {
		return ctx
	}
	return context.WithValue(ctx, causeKey{}, string(obj.GetUID())+"/"+obj.GetResourceVersion())
}

// causes puts the cause a request's context carries into its header.
type causes struct{ next http.RoundTripper }

func (c causes) RoundTrip(req *http.Request) (*http.Response, error) {
	if cause, ok := req.Context().Value(causeKey{}).(string); ok {
		clone := *req // the caller's request must not change
		clone.Header = req.Header.Clone()
		clone.Header[CauseHeader] = []string{cause}
		req = &clone
	}
	return c.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (c causes) WrappedRoundTripper() http.RoundTripper { return c.next }
