package client

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/journey"
)

type causeKey struct{}

// Because marks what is done under a context as done because of an object, in the version at hand. Every request sent with the context
// tells the server so. A context that has causes already gets one more; those that came first stay if there are too many. An object that
// is not in the API is no cause.
func Because(ctx context.Context, obj metav1.Object) context.Context {
	revision, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil || revision <= 0 || obj.GetUID() == "" {
		return ctx
	}
	cause := journey.Cause{UID: string(obj.GetUID()), Revision: revision}.String()
	before, _ := ctx.Value(causeKey{}).([]string)
	if len(before) == journey.MaxCauses || slices.Contains(before, cause) {
		return ctx
	}
	return context.WithValue(ctx, causeKey{}, append(slices.Clip(before), cause))
}

// causes puts the causes a request's context carries into its header.
type causes struct{ next http.RoundTripper }

func (c causes) RoundTrip(req *http.Request) (*http.Response, error) {
	if list, ok := req.Context().Value(causeKey{}).([]string); ok {
		clone := *req // the caller's request must not change
		clone.Header = req.Header.Clone()
		clone.Header.Set(journey.HeaderCause, strings.Join(list, ","))
		req = &clone
	}
	return c.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (c causes) WrappedRoundTripper() http.RoundTripper { return c.next }
