package nonresource

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"skiff/internal/cache"
)

func (h *Handler) serveMetrics(w http.ResponseWriter, r *http.Request) {
	all := append(h.API.Metrics.Gatherers(), h.currentMetrics())
	promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// currentMetrics returns metrics of what the caches hold and how many requests execute or wait, at this moment.
func (h *Handler) currentMetrics() prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	objects := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_resource_objects", Help: "Number of stored objects at the time of last check split by kind."}, []string{"group", "resource"})
	size := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_resource_size_estimate_bytes", Help: "Estimated size of stored objects in bytes."}, []string{"group", "resource"})
	for gvr, e := range h.API.Served().Endpoints {
		if e.Registry == nil || !e.Plain() {
			continue
		}
		var stats cache.Stats = e.Registry.Cache.Stats()
		objects.WithLabelValues(gvr.Group, gvr.Resource).Set(float64(stats.Objects))
		size.WithLabelValues(gvr.Group, gvr.Resource).Set(float64(stats.Bytes))
	}
	places := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_current_inflight_requests", Help: "Number of currently used inflight request limit of this apiserver per request kind."}, []string{"request_kind"})
	waiting := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_current_inqueue_requests", Help: "Maximal number of queued requests in this apiserver per request kind in last second."}, []string{"request_kind"})
	flow := h.Flow.Stats()
	places.WithLabelValues("readOnly").Set(float64(flow.ReadOnly))
	places.WithLabelValues("mutating").Set(float64(flow.Mutating))
	waiting.WithLabelValues("readOnly").Set(float64(flow.WaitingReadOnly))
	waiting.WithLabelValues("mutating").Set(float64(flow.WaitingMutating))
	registry.MustRegister(objects, size, places, waiting, h.Flow)
	return registry
}
