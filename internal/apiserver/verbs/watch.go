package verbs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
)

// watch streams changes until the client disconnects, the timeout has elapsed or the server stops.
func (rq *Request) watch() error {
	if err := rq.NegotiateAs(codec.AsTable, codec.AsPartial); err != nil {
		return err
	}
	opts, err := request.ParseListOptions(rq.Query)
	if err != nil {
		return err
	}
	if err := registry.ValidateListOptions(opts, true); err != nil {
		return err
	}
	fieldSelector := opts.FieldSelector
	if rq.Route.Name != "" {
		if fieldSelector != "" {
			fieldSelector += ","
		}
		fieldSelector += "metadata.name=" + rq.Route.Name
	}
	selector, err := rq.Endpoint.Registry.NewSelector(rq.Endpoint.Info, rq.Route.Namespace, opts.LabelSelector, fieldSelector)
	if err != nil {
		return err
	}
	selector.Reading, selector.Uninitialized = rq.Reading(), rq.includeUninitialized()
	stream, err := rq.NewWatchStream(selector, opts)
	if err != nil {
		return err
	}
	timeout := rq.API.MinWatch + rand.N(rq.API.MinWatch)
	if opts.TimeoutSeconds != nil && *opts.TimeoutSeconds > 0 {
		timeout = time.Duration(*opts.TimeoutSeconds) * time.Second
	}
	ctx, cancel := context.WithTimeout(rq.Ctx, timeout)
	defer cancel()
	stop := context.AfterFunc(rq.Shared.Stopping, cancel)
	defer stop()
	started, err := rq.startWatch(ctx, selector, opts)
	switch {
	case err == nil:
		defer started.Close()
	case apierrors.IsResourceExpired(err), apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return stream.Serve(ctx, func(context.Context) { stream.Refuse(response.StatusOf(err)) })
	default:
		return err
	}
	defer rq.Endpoint.Watchers.Add(rq.Route.Namespace, selector.Name)()
	return stream.Serve(ctx, func(ctx context.Context) {
		defer rq.API.Metrics.Long("WATCH", rq.Route)()
		stream.Run(ctx, started)
	})
}

// startWatch starts a watch, unless it would begin with what happened to another resource of the name.
func (rq *Request) startWatch(ctx context.Context, selector registry.Selector, opts *metav1.ListOptions) (started registry.StartedWatch, err error) {
	after, err := registry.ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return started, err
	}
	if after > 0 && after < rq.Endpoint.Since {
		return started, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", after, rq.Endpoint.Since))
	}
	return rq.Endpoint.Registry.StartWatch(ctx, selector, opts)
}
