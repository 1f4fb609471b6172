package webhook

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// callError says that a webhook could not be asked, or gave no valid answer. The failurePolicy decides what that means.
type callError struct {
	webhook string
	reason  error
	status  *apierrors.StatusError
}

// Error implements error.
func (e *callError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.webhook, e.reason)
}

// Unwrap returns the reason.
func (e *callError) Unwrap() error { return e.reason }

// rejection says that a webhook refused the request.
type rejection struct{ status *apierrors.StatusError }

// Error implements error.
func (r *rejection) Error() string { return r.status.Error() }

// denied returns the error for a request that a webhook refused with a result.
func denied(webhook string, result *metav1.Status) *apierrors.StatusError {
	status := metav1.Status{}
	if result != nil {
		status = *result
	}
	status.Code = max(status.Code, http.StatusBadRequest) // a refusal is not answered with a success
	if status.Code > 999 {
		status.Code = http.StatusInternalServerError // not a code that HTTP can carry
	}
	if status.Status == "" || status.Status == metav1.StatusSuccess {
		status.Status = metav1.StatusFailure
	}
	text := fmt.Sprintf("admission webhook %q denied the request", webhook)
	switch {
	case status.Message != "":
		status.Message = text + ": " + status.Message
	case status.Reason != "":
		status.Message = text + ": " + string(status.Reason)
	default:
		status.Message = text + " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: status}
}
