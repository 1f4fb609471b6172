package cronjob

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skiff/internal/controller"
)

// skew counts how long after its scheduled time each Job was created, under upstream's name. The zero skew counts nothing.
type skew struct{ histogram prometheus.Histogram }

func newSkew(m *controller.Metrics) skew {
	if m == nil {
		return skew{}
	}
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "cronjob_controller_job_creation_skew_duration_seconds",
		Help:    "Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
		Buckets: prometheus.ExponentialBuckets(1, 2, 10)})
	m.MustRegister(h)
	return skew{h}
}

func (s skew) observe(d time.Duration) {
	if s.histogram != nil {
		s.histogram.Observe(d.Seconds())
	}
}
