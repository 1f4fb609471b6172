package response

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/codec"
)

// ErrNotFound refuses a path that leads nowhere.
var ErrNotFound = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
	Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{}}}

// ErrNoPage refuses a path in a group that is not built in, or not served. It is answered with text.
var ErrNoPage = &apierrors.StatusError{ErrStatus: ErrNotFound.ErrStatus}

// ErrMethodNotAllowed refuses a method that a path does not have.
var ErrMethodNotAllowed = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed,
	Message: "the server does not allow this method on the requested resource", Details: &metav1.StatusDetails{}}}

// TooManyRequests refuses a request for which there is no seat.
func (w *Writer) TooManyRequests() error {
	return apierrors.NewTooManyRequests("Too many requests, please try again later.", w.Seat.RetryAfter())
}

// internalError is answered with text.
type internalError struct {
	uri   string
	cause error
}

// InternalError returns the error for a request of which could not be decided whether it is allowed.
func InternalError(r *http.Request, cause error) error { return &internalError{r.RequestURI, cause} }

// Error returns upstream's text.
func (e *internalError) Error() string {
	return authz.NoHTML(fmt.Sprintf("Internal Server Error: %q: %v", e.uri, e.cause))
}

// Unwrap returns why it could not be decided.
func (e *internalError) Unwrap() error { return e.cause }

// Fail answers with an error, as a Status, and returns its code.
func Fail(w http.ResponseWriter, r *http.Request, err error) int {
	if internal, ok := err.(*internalError); ok {
		http.Error(w, internal.Error(), http.StatusInternalServerError)
		return http.StatusInternalServerError
	}
	if err == error(ErrNoPage) {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return http.StatusNotFound
	}
	status := StatusOf(err)
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	accept, negotiated := codec.Negotiate(r.Header.Get("Accept"))
	if negotiated != nil {
		accept = codec.Accepted{}
	}
	accept.Shape = codec.AsObject
	accept.Pretty = accept.Pretty || Pretty(r)
	body := codec.Status(&status, accept)
	if out, ok := w.(*Writer); ok {
		out.limitErrorWait()
	}
	w.Header().Set("Content-Type", accept.Media.String())
	w.WriteHeader(int(status.Code))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
	return int(status.Code)
}

// StatusOf returns the Status of an error; its code is 500 if the error is not of the API.
func StatusOf(err error) metav1.Status {
	var api apierrors.APIStatus
	if errors.As(err, &api) {
		status := api.Status()
		if status.Status == "" {
			status.Status = metav1.StatusFailure
		}
		if status.Code == 0 {
			status.Code = http.StatusInternalServerError
		}
		return status
	}
	return metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error(), Reason: metav1.StatusReasonUnknown}
}

// Pretty reports whether JSON is to be indented: the client asks for it, or is curl, Wget or a browser.
func Pretty(r *http.Request) bool {
	if strings.Contains(r.URL.RawQuery, "pretty=") {
		p := r.URL.Query().Get("pretty")
		return p == "1" || p == "true"
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// Forbidden returns the error for a request that an authorizer did not allow, for the reason it gave.
func Forbidden(a *authz.Attributes, reason string, err error) error {
	if err != nil && reason == "" {
		reason = err.Error()
	}
	return authz.Forbidden(a, reason)
}
