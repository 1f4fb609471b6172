package webhook

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/webhook/review"
)

const (
	validatingPrefix = "validating.webhook.admission.k8s.io/"
	// maxParallel bounds the webhooks that are called at the same time for one request.
	maxParallel = 64
)

// Validate implements admission.Validator: it calls all webhooks that select the request at the same time. The first refusal in order is returned.
func (v *Validating) Validate(ctx context.Context, a *admission.Attributes) error {
	list := v.current.Load().candidates(a)
	if len(list) == 0 {
		return nil
	}
	r, err := newRequest(a)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	var selected []candidate
	var messages []*review.Request
	for _, c := range list {
		ok, err := v.matches(ctx, r, c)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		f, err := r.form(ctx, c.as)
		if err != nil {
			return err
		}
		message, err := r.message(f)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		selected, messages = append(selected, c), append(messages, message)
	}
	switch {
	case len(selected) == 0:
		return nil
	case ctx.Err() != nil:
		return errTimeout
	case len(selected) == 1:
		return v.validate(ctx, r, selected[0], 0, messages[0])
	}
	return v.validateAll(ctx, r, selected, messages)
}

// validateAll calls several webhooks at the same time, and returns the first refusal in order.
func (v *Validating) validateAll(ctx context.Context, r *request, selected []candidate, messages []*review.Request) error {
	refusals := make([]error, len(selected))
	slots := make(chan struct{}, maxParallel)
	var running sync.WaitGroup
	for i := range selected {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			refusals[i] = v.validate(ctx, r, selected[i], i, messages[i])
		})
	}
	running.Wait()
	for _, err := range refusals {
		if err != nil {
			return err
		}
	}
	return nil
}

// validate calls one webhook. number is its place among those that are called.
func (v *Validating) validate(ctx context.Context, r *request, c candidate, number int, message *review.Request) (refusal error) {
	open := func() {
		key := fmt.Sprintf("%s%sround_0_index_%d", failedOpen, validatingPrefix, number)
		if err := r.AddAnnotation(admission.Annotation{Key: key, Value: c.Name}); err != nil {
			v.log.Warn("failed to set admission audit annotation", "webhook", c.Name, "key", key, "err", err)
		}
	}
	defer func() {
		panicked := recover()
		if panicked == nil {
			return
		}
		v.log.Error("panic when calling webhook", "webhook", c.Name, "panic", panicked, "stack", string(debug.Stack()))
		if c.ignoresFailure() {
			v.metrics.failOpen.WithLabelValues(c.Name, v.step).Inc()
			open()
			return
		}
		refusal = apierrors.NewInternalError(fmt.Errorf("ValidatingAdmissionWebhook/%v has panicked: %v", c.Name, panicked))
	}()
	start := time.Now()
	_, err := v.ask(ctx, r, c.hook, message)
	return v.settle(ctx, r, c.hook, start, false, err, open)
}
