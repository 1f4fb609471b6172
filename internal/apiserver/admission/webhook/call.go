package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/webhook/client"
	"skiff/internal/apiserver/admission/webhook/review"
)

// maxTimeout bounds a call of a webhook without timeoutSeconds.
const maxTimeout = 30 * time.Second

// ask asks a webhook about a request. The error is a *callError if the webhook did not answer as it should, and a *rejection if it refuses the request.
// It reads the form and changes nothing, so that several webhooks can be asked at the same time.
func (p *plugin) ask(ctx context.Context, r *request, h *hook, message *review.Request) (*admissionv1.AdmissionResponse, error) {
	fail := func(status *apierrors.StatusError, format string, args ...any) (*admissionv1.AdmissionResponse, error) {
		return nil, &callError{h.Name, fmt.Errorf(format, args...), status}
	}
	if r.DryRun {
		if h.SideEffects == nil {
			return fail(apierrors.NewBadRequest("Webhook SideEffects is nil"), "Webhook SideEffects is nil")
		}
		if s := *h.SideEffects; s != admissionregistrationv1.SideEffectClassNone && s != admissionregistrationv1.SideEffectClassNoneOnDryRun {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.Name))
		}
	}
	version, err := review.Version(h.AdmissionReviewVersions)
	if err != nil {
		return fail(apierrors.NewBadRequest("error creating admission objects"), "could not create admission objects: %w", err)
	}
	if h.endpointErr != nil {
		return fail(apierrors.NewInternalError(h.endpointErr), "could not get REST client: %w", h.endpointErr)
	}
	uid := uuid.NewUUID()
	body, err := p.post(ctx, h, message, version, uid)
	var answer *admissionv1.AdmissionReview
	if err == nil {
		answer, err = review.Decode(body, version)
	}
	var unusable *client.CredentialsError
	switch {
	case errors.As(err, &unusable):
		return fail(apierrors.NewInternalError(err), "could not get REST client: %w", err)
	case err != nil:
		status, ok := err.(*apierrors.StatusError)
		if !ok {
			status = apierrors.NewServiceUnavailable("error calling webhook")
		}
		return fail(status, "failed to call webhook: %w", err)
	}
	response, err := review.Verify(answer, version, uid, p.mutating)
	if err != nil {
		return fail(apierrors.NewServiceUnavailable("error validating webhook response"), "received invalid webhook response: %w", err)
	}
	p.pass(r, h, response)
	if !response.Allowed {
		return nil, &rejection{denied(h.Name, response.Result)}
	}
	return response, nil
}

// post sends a review to a webhook, for as long as its timeout and the request allow.
func (p *plugin) post(ctx context.Context, h *hook, message *review.Request, version string, uid types.UID) ([]byte, error) {
	timeout := maxTimeout
	if h.TimeoutSeconds != nil {
		timeout = time.Duration(*h.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return h.endpoint.Post(ctx, h.path, message.Body(version, string(uid)))
}

// pass passes the warnings and audit annotations of a response on.
func (p *plugin) pass(r *request, h *hook, response *admissionv1.AdmissionResponse) {
	for key, value := range response.AuditAnnotations {
		if err := r.AddAnnotation(admission.Annotation{Key: h.Name + "/" + key, Value: value}); err != nil {
			p.log.Warn("failed to set admission audit annotation", "webhook", h.Name, "key", key, "err", err)
		}
	}
	for _, warning := range response.Warnings {
		if warning != "" {
			r.Warn(warning)
		}
	}
}

// settle records the outcome of a call, and returns the error that refuses the request, if it does. failOpen is called if the webhook failed and that is
// ignored.
func (p *plugin) settle(ctx context.Context, r *request, h *hook, start time.Time, changed bool, err error, failOpen func()) error {
	verdict, code, errorType, refusal := admission.Allowed, int32(200), "", err
	if changed {
		verdict = admission.Patched
	}
	var failure *callError
	var denial *rejection
	switch {
	case err == nil:
	case errors.As(err, &failure):
		code = failure.status.ErrStatus.Code
		if h.ignoresFailure() {
			verdict, refusal = admission.FailedOpen, nil
			break
		}
		verdict, refusal = admission.Failed, apierrors.NewInternalError(err)
		if !errors.Is(failure.reason, context.Canceled) {
			errorType = "calling_webhook_error"
		}
	case errors.As(err, &denial):
		verdict, code, errorType, refusal = admission.Denied, denial.status.ErrStatus.Code, "no_error", denial.status
	default:
		verdict, code, errorType = admission.Failed, 0, "apiserver_internal_error"
	}
	took := time.Since(start)
	if errorType != "" {
		p.metrics.rejected(h.Name, p.step, r.Operation, errorType, code)
	}
	p.metrics.called(h.Name, p.step, r.Operation, took, refusal != nil, code)
	if r.Origin != nil {
		r.Origin.Called(r.Attributes, admission.Call{Kind: p.kind, Name: h.Name, Under: h.configuration, Start: start, Duration: took, Verdict: verdict, Err: err})
	}
	if failure != nil {
		p.log.Warn("failed to call webhook", "webhook", h.Name, "configuration", h.configuration, "verdict", verdict, "err", failure.reason)
	}
	if verdict == admission.FailedOpen && !errors.Is(failure.reason, context.Canceled) {
		p.metrics.failOpen.WithLabelValues(h.Name, p.step).Inc()
		failOpen()
	}
	return refusal
}
