package conversion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"skiff/internal/apiserver/admission/webhook/client"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog/custom"
	"skiff/internal/journey"
)

const (
	// timeout bounds a call of a webhook.
	timeout = 30 * time.Second
	// maxReview is the size of the objects of a review, in bytes, from which on another review is made, and maxReviews how many are under way at once for
	// one read.
	maxReview, maxReviews = 1 << 20, 4
	// maxAnswer bounds the answer to a review.
	maxAnswer = 16 << 20
)

// Options hold what converters work with.
type Options struct {
	// Store has the Services of webhooks and their EndpointSlices.
	Store objects.Reader
	// Dial connects to webhook servers; directly if nil.
	Dial client.Dial
	// Metrics is where the metrics are registered.
	Metrics prometheus.Registerer
	// Journey remembers the failures of webhooks; it may be nil.
	Journey *journey.Recorder
	// Stopping ends when the server stops: connections are closed.
	Stopping context.Context
	Log      *slog.Logger
}

// Webhooks makes the converters of definitions, which share connections.
type Webhooks struct {
	pool    *client.Pool
	metrics *metrics
	journey *journey.Recorder
	log     *slog.Logger
}

// New returns a maker of converters.
func New(o Options) *Webhooks {
	w := &Webhooks{pool: client.NewPool(client.NewResolver(o.Store).Resolve, o.Dial, nil), metrics: newMetrics(o.Metrics), journey: o.Journey, log: o.Log}
	context.AfterFunc(o.Stopping, w.pool.Close)
	return w
}

// webhook is the conversion webhook of a definition.
type webhook struct {
	*Webhooks
	definition  string // its name
	versions    []string
	endpoint    *client.Endpoint // nil with endpointErr
	endpointErr error
	path        string
	release     func()
}

// Converter returns the converter of a definition that names a webhook.
func (w *Webhooks) Converter(crd *apiextensionsv1.CustomResourceDefinition) custom.Converter {
	c := &webhook{Webhooks: w, definition: crd.Name, versions: crd.Spec.Conversion.Webhook.ConversionReviewVersions}
	config := &admissionregistrationv1.WebhookClientConfig{}
	if from := crd.Spec.Conversion.Webhook.ClientConfig; from != nil {
		config.URL, config.CABundle = from.URL, bytes.TrimSpace(from.CABundle)
		if s := from.Service; s != nil {
			config.Service = &admissionregistrationv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Path: s.Path, Port: s.Port}
		}
	}
	c.endpoint, c.path, c.endpointErr = w.pool.Acquire(config)
	c.release = sync.OnceFunc(func() {
		if c.endpoint != nil {
			w.pool.Release(c.endpoint)
		}
	})
	return c
}

// Close implements custom.Converter.
func (w *webhook) Close() { w.release() }

// Convert implements custom.Converter.
func (w *webhook) Convert(ctx context.Context, objects []*custom.Object, to *custom.Version) ([]*custom.Object, error) {
	encoded := make([][]byte, len(objects))
	for i, o := range objects {
		var err error
		if encoded[i], err = encode(o); err != nil {
			return nil, err
		}
	}
	converted := make([]*custom.Object, len(objects))
	calls, ctx := errgroup.WithContext(ctx)
	calls.SetLimit(maxReviews)
	for from := 0; from < len(objects); {
		until, size := from+1, len(encoded[from])
		for until < len(objects) && size+len(encoded[until]) <= maxReview {
			size += len(encoded[until])
			until++
		}
		start := from
		calls.Go(func() error {
			got, err := w.call(ctx, objects[start:until], encoded[start:until], to)
			copy(converted[start:until], got)
			return err
		})
		from = until
	}
	if err := calls.Wait(); err != nil {
		return nil, err
	}
	return converted, nil
}

// call has the webhook convert objects in one review.
func (w *webhook) call(ctx context.Context, objects []*custom.Object, encoded [][]byte, to *custom.Version) (converted []*custom.Object, err error) {
	from, start := objects[0].Version().Kind(), time.Now()
	failure := callFailure
	if converted, failure, err = w.review(ctx, objects, encoded, to); err != nil {
		err = failedError(from, err)
	}
	took := time.Since(start)
	w.metrics.called(w.definition, from.Version, to.Kind().Version, took, failure, err)
	made := call{definition: w.definition, from: from.Version, to: to.Kind().Version, objects: len(objects), start: start, took: took, err: err}
	record(ctx, made)
	if ctx.Err() == nil {
		made.remember(w.journey)
	}
	if err != nil && ctx.Err() == nil {
		w.log.Warn("failed to convert custom objects by webhook", "definition", w.definition, "from", from.Version, "to", to.Kind().Version, "objects", len(objects), "err", err)
	}
	return converted, err
}

// failedError returns the error of a failed call. What the answer itself says is worded already. A Status that the webhook answered with is not the one that
// the client is to get, so only its text is kept.
func failedError(from schema.GroupVersionKind, err error) error {
	var answer *answerError
	if errors.As(err, &answer) {
		return fmt.Errorf("conversion webhook for %v %w", from, err)
	}
	return fmt.Errorf("conversion webhook for %v failed: %v", from, err)
}

// review sends a review, and returns the objects of the answer. failure is what metrics call the error.
func (w *webhook) review(ctx context.Context, objects []*custom.Object, encoded [][]byte, to *custom.Version) (converted []*custom.Object, failure string, err error) {
	version, err := reviewVersion(w.versions)
	if err != nil {
		return nil, callFailure, err
	}
	if w.endpointErr != nil {
		return nil, callFailure, w.endpointErr
	}
	uid, apiVersion := uuid.NewUUID(), to.Kind().GroupVersion().String()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := w.endpoint.PostUpTo(ctx, w.path, request(version, string(uid), apiVersion, encoded), maxAnswer)
	if err != nil {
		return nil, callFailure, err
	}
	answer, err := decode(body, version)
	if err != nil {
		return nil, callFailure, err
	}
	raw, err := verify(answer, version, uid)
	if err != nil {
		return nil, malformedFailure, err
	}
	if len(raw) != len(objects) {
		return nil, partialFailure, &answerError{fmt.Sprintf("returned %d objects, expected %d", len(raw), len(objects))}
	}
	converted = make([]*custom.Object, len(objects))
	for i, o := range objects {
		where := "invalid converted object at index " + fmt.Sprint(i)
		if len(objects) == 1 {
			where = "invalid object"
		}
		if converted[i], err = convertedObject(o, raw[i].Raw, to, where, i); err != nil {
			return nil, invalidFailure, err
		}
	}
	return converted, "", nil
}
