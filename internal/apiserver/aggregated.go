package apiserver

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"skiff/internal/apiserver/admission/webhook/client"
	"skiff/internal/apiserver/aggregation"
	"skiff/internal/cache"
)

// refollowAfter is how long a failed watch of a Service is waited with before it is begun again.
const refollowAfter = time.Second

// newAggregation returns the loop of APIServices.
func (s *Server) newAggregation() *aggregation.Aggregation {
	return aggregation.New(s.stopping, aggregation.Options{Host: aggregationHost{s}, Objects: s.loopback, Resolve: client.NewResolver(s.loopback).Resolve, Dial: s.opts.Dial,
		ClientCertificate: s.opts.ProxyClientCertificate, ForwardRedirects: s.opts.ForwardRedirects, Metrics: s.api.Metrics.Registry, Log: s.opts.Log})
}

// aggregationHost is the server as the loop of APIServices sees it.
type aggregationHost struct{ server *Server }

var _ aggregation.Host = aggregationHost{}

// DiscoveryChanged has discovery say what other servers serve now.
func (h aggregationHost) DiscoveryChanged() { h.server.publishDiscovery() }

// PutDocuments puts the OpenAPI documents of a group version that another server serves.
func (h aggregationHost) PutDocuments(path, hash string, v3, v2 func() ([]byte, error)) error {
	return h.server.openAPI.Put(path, hash, v3, v2)
}

// DeleteDocuments removes the OpenAPI documents of a group version that another server has served. Definitions may have the group version too: theirs appear again.
func (h aggregationHost) DeleteDocuments(path, group string) {
	h.server.openAPI.Delete(path)
	h.server.custom.describeAgain(group)
	if group == metricsv1beta1.GroupName {
		h.server.describeMetrics()
	}
}

// FollowService calls changed for changes of a Service and of its EndpointSlices, which it watches by name and label: changes of others cost nothing.
func (h aggregationHost) FollowService(ctx context.Context, namespace, name string, changed func()) {
	var wg sync.WaitGroup
	wg.Go(func() { h.follow(ctx, "", "services", namespace, "", "metadata.name="+name, changed) })
	wg.Go(func() {
		h.follow(ctx, "discovery.k8s.io", "endpointslices", namespace, "kubernetes.io/service-name="+name, "", changed)
	})
	wg.Wait()
}

// follow calls changed for changes of selected objects until ctx ends, and whenever changes may have been missed.
func (h aggregationHost) follow(ctx context.Context, group, plural, namespace, labels, fields string, changed func()) {
	reg := h.server.api.Endpoint(group, "v1", plural).Registry
	for ctx.Err() == nil {
		selector, err := reg.NewSelector(reg.Info, namespace, labels, fields)
		if err != nil {
			h.server.opts.Log.Error("failed to follow the Service of an APIService", "namespace", namespace, "labels", labels, "fields", fields, "err", err)
			return // the name cannot be selected: no Service has it
		}
		_, watch, err := reg.WatchFromNow(ctx, selector, false)
		if err == nil {
			changed()
			changes := make([]*cache.Change, 0, 8)
			for err == nil {
				var got []*cache.Change
				got, err = watch.Next(ctx, changes[:0])
				if slices.ContainsFunc(got, func(c *cache.Change) bool { _, it := selector.Event(c); return it != nil }) {
					changed()
				}
				clear(got)
			}
			watch.Close()
		}
		if !errors.Is(err, cache.ErrTooOld) {
			select {
			case <-ctx.Done():
			case <-time.After(refollowAfter):
			}
		}
	}
}
