package front

import (
	"context"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/fields"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
)

// authenticate returns the user who sent a request.
func (f *Front) authenticate(w http.ResponseWriter, r *http.Request) (*authn.User, error) {
	if user, err := authn.Components(r); user != nil || err != nil {
		return user, err
	}
	if r.Header["Authorization"] != nil {
		r = r.WithContext(context.WithValue(r.Context(), noteKey{}, w))
	}
	user, err := f.Authentication.Authenticate(r)
	if err != nil {
		f.refusals.note(r, err)
		return nil, apierrors.NewUnauthorized("Unauthorized")
	}
	if user == nil {
		return nil, apierrors.NewUnauthorized("Unauthorized")
	}
	return user, nil
}

// nameInSelector returns the metadata.name that a field selector requires; empty if it requires none. A list of one object is authorized like a get of
// that object.
func nameInSelector(fieldSelector string) string {
	selector, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return "" // the verb refuses it with the reason
	}
	name, ok := selector.RequiresExactMatch("metadata.name")
	if !ok || len(path.IsValidPathSegmentName(name)) > 0 {
		return ""
	}
	return name
}

// addSelectors sets the selectors of attributes to those of the request, if it is about the objects that they select. Those of the deprecated watch paths are
// left out, as upstream does: some of these paths do not heed them.
func addSelectors(a *authz.Attributes, r *http.Request, rt *request.Route) {
	if !strings.Contains(r.URL.RawQuery, "Selector=") || rt.WatchPath {
		return
	}
	switch a.Verb {
	case "list", "watch", "deletecollection":
		query := r.URL.Query()
		a.FieldSelector, a.LabelSelector = query.Get("fieldSelector"), query.Get("labelSelector")
		if a.Name == "" && a.Verb != "deletecollection" {
			a.Name = nameInSelector(a.FieldSelector)
		}
	}
}

// impersonate sets a.User to the user who is impersonated, if any.
func (f *Front) impersonate(ctx context.Context, r *http.Request, a *authz.Attributes) error {
	other, _, err := f.impersonator.Impersonate(ctx, r.Header, a)
	if err != nil {
		return err
	}
	if other != nil {
		a.User = other
	}
	return nil
}

// authorize returns an error unless the user may do what the request asks.
func (f *Front) authorize(ctx context.Context, r *http.Request, a *authz.Attributes) error {
	decision, reason, err := f.API.Authorizer.Authorize(ctx, a)
	switch {
	case decision == authz.Allow, decision == authz.NoOpinion && f.NonResource.Allows(a):
		return nil
	case err != nil: // an authorizer could not decide, and no other allows
		return response.InternalError(r, err)
	}
	return authz.Forbidden(a, reason)
}

type noteKey struct{}

// RequestNotes sends what authenticators have to say to the client of the request that they authenticate.
type RequestNotes struct{}

// Warn adds a Warning header to the response.
func (RequestNotes) Warn(ctx context.Context, text string) {
	w, _ := ctx.Value(noteKey{}).(http.ResponseWriter)
	if header, err := utilnet.NewWarningHeader(299, "-", text); err == nil && w != nil {
		w.Header().Add("Warning", header)
	}
}

// Annotate does nothing: there is no audit log yet.
func (RequestNotes) Annotate(context.Context, string, string) {}
