package encryption

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/lru"
)

// metrics are upstream's, under upstream's names. The label apiserver_id_hash tells several servers apart.
type metrics struct {
	server string // hash of the server's id

	latencies                            *prometheus.HistogramVec
	operations                           *prometheus.CounterVec
	cacheMisses, generationFailures      prometheus.Counter
	generation                           prometheus.Histogram
	pluginLatencies                      *prometheus.HistogramVec
	invalidKeyID, keyIDs, reloads        *prometheus.CounterVec
	keyIDLast, keyIDOfStatusLast, cached *prometheus.GaugeVec
	reloadLast, config                   *prometheus.GaugeVec
	seriesMu                             sync.Mutex
	keyIDSeries, keyIDOfStatusSeries     *lru.Cache // the series of the latest key ids: a plugin may have any number of them
}

// maxKeyIDSeries bounds the key ids in metrics.
const maxKeyIDSeries = 100

func newMetrics(server string, r prometheus.Registerer) *metrics {
	storage := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "apiserver", Subsystem: "storage", Name: name, Help: help}
	}
	envelope := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "apiserver", Subsystem: "envelope_encryption", Name: name, Help: help}
	}
	controller := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "apiserver", Subsystem: "encryption_config_controller", Name: name, Help: help}
	}
	histogram := func(o prometheus.Opts, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: o.Namespace, Subsystem: o.Subsystem, Name: o.Name, Help: o.Help, Buckets: buckets}
	}
	counter := func(o prometheus.Opts, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(o), labels)
	}
	gauge := func(o prometheus.Opts, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts(o), labels)
	}
	m := &metrics{server: hashOf(server),
		latencies: prometheus.NewHistogramVec(histogram(storage("transformation_duration_seconds", "Latencies in seconds of value transformation operations."),
			prometheus.ExponentialBuckets(5e-6, 2, 25)), []string{"transformation_type", "transformer_prefix"}),
		operations:         counter(storage("transformation_operations_total", "Total number of transformations, by resource, direction, provider and status."), "resource", "transformation_type", "transformer_prefix", "status"),
		cacheMisses:        prometheus.NewCounter(prometheus.CounterOpts(storage("envelope_transformation_cache_misses_total", "Total number of cache misses while accessing key decryption key(KEK)."))),
		generation:         prometheus.NewHistogram(histogram(storage("data_key_generation_duration_seconds", "Latencies in seconds of data encryption key(DEK) generation operations."), prometheus.ExponentialBuckets(5e-6, 2, 14))),
		generationFailures: prometheus.NewCounter(prometheus.CounterOpts(storage("data_key_generation_failures_total", "Total number of failed data encryption key(DEK) generation operations."))),
		pluginLatencies: prometheus.NewHistogramVec(histogram(envelope("kms_operations_latency_seconds", "KMS operation duration with gRPC error code status total."),
			prometheus.ExponentialBuckets(0.0001, 2, 20)), []string{"provider_name", "method_name", "grpc_status_code"}),
		invalidKeyID: counter(envelope("invalid_key_id_from_status_total", "Number of times an invalid keyID is returned by the Status RPC call split by error."), "provider_name", "error"),
		keyIDs: counter(envelope("key_id_hash_total", "Number of times a keyID is used split by transformation type, provider, and apiserver identity."),
			"transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"),
		keyIDLast: gauge(envelope("key_id_hash_last_timestamp_seconds", "The last time in seconds when a keyID was used."),
			"transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"),
		keyIDOfStatusLast: gauge(envelope("key_id_hash_status_last_timestamp_seconds", "The last time in seconds when a keyID was returned by the Status RPC call."),
			"provider_name", "key_id_hash", "apiserver_id_hash"),
		cached:     gauge(envelope("dek_source_cache_size", "Number of records in data encryption key (DEK) source cache."), "provider_name"),
		reloads:    counter(controller("automatic_reloads_total", "Total number of reload successes and failures of encryption configuration split by apiserver identity."), "status", "apiserver_id_hash"),
		reloadLast: gauge(controller("automatic_reload_last_timestamp_seconds", "Timestamp of the last successful or failed automatic reload of encryption configuration split by apiserver identity."), "status", "apiserver_id_hash"),
		config:     gauge(controller("last_config_info", "Information about the last applied encryption configuration with hash as label, split by apiserver identity."), "apiserver_id_hash", "hash"),
	}
	m.keyIDSeries = lru.NewWithEvictionFunc(maxKeyIDSeries, func(key lru.Key, _ any) {
		k := key.(keyIDLabels)
		m.keyIDs.DeleteLabelValues(k.direction, k.provider, hashOf(k.keyID), m.server)
		m.keyIDLast.DeleteLabelValues(k.direction, k.provider, hashOf(k.keyID), m.server)
	})
	m.keyIDOfStatusSeries = lru.NewWithEvictionFunc(maxKeyIDSeries, func(key lru.Key, _ any) {
		k := key.(keyIDLabels)
		m.keyIDOfStatusLast.DeleteLabelValues(k.provider, hashOf(k.keyID), m.server)
	})
	if r != nil {
		r.MustRegister(m.latencies, m.operations, m.cacheMisses, m.generation, m.generationFailures, m.pluginLatencies, m.invalidKeyID, m.keyIDs, m.keyIDLast,
			m.keyIDOfStatusLast, m.cached, m.reloads, m.reloadLast, m.config)
	}
	return m
}

// keyIDLabels select the series of a plugin's key.
type keyIDLabels struct{ direction, provider, keyID string }

type keyIDSeries struct {
	count prometheus.Counter
	last  prometheus.Gauge
}

// keyIDUsed counts the use of a plugin's key.
func (m *metrics) keyIDUsed(direction, provider, keyID string) {
	labels := keyIDLabels{direction, provider, keyID}
	m.seriesMu.Lock()
	found, ok := m.keyIDSeries.Get(labels)
	if !ok {
		hash := hashOf(keyID)
		found = keyIDSeries{m.keyIDs.WithLabelValues(direction, provider, hash, m.server), m.keyIDLast.WithLabelValues(direction, provider, hash, m.server)}
		m.keyIDSeries.Add(labels, found)
	}
	m.seriesMu.Unlock()
	series := found.(keyIDSeries)
	series.count.Inc()
	series.last.SetToCurrentTime()
}

// keyIDOfStatus records that a plugin has named its current key.
func (m *metrics) keyIDOfStatus(provider, keyID string) {
	m.seriesMu.Lock()
	defer m.seriesMu.Unlock()
	m.keyIDOfStatusSeries.Add(keyIDLabels{provider: provider, keyID: keyID}, nil)
	m.keyIDOfStatusLast.WithLabelValues(provider, hashOf(keyID), m.server).SetToCurrentTime()
}

// sources records how many sources of a plugin are kept decrypted.
func (m *metrics) sources(provider string, n int) { m.cached.WithLabelValues(provider).Set(float64(n)) }

// called records a call to a plugin.
func (m *metrics) called(provider, method string, took time.Duration, err error) {
	m.pluginLatencies.WithLabelValues(provider, method, statusOf(err)).Observe(took.Seconds())
}

// reloaded records an attempt to reload the configuration.
func (m *metrics) reloaded(err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.reloads.WithLabelValues(result, m.server).Inc()
	m.reloadLast.WithLabelValues(result, m.server).SetToCurrentTime()
}

// applied records the hash of the current configuration.
func (m *metrics) applied(hash string) {
	m.config.Reset()
	m.config.WithLabelValues(m.server, hash).Set(1)
}

// transformations counts the transformations of a resource by one provider.
type transformations struct {
	m             *metrics
	resource      string
	writes, reads direction
}

// direction counts the transformations in one direction. It keeps the series of those that succeed, as looking series up by labels takes longer than counting.
type direction struct {
	name, prefix string
	once         sync.Once
	count        prometheus.Counter
	seconds      prometheus.Observer
}

// transformations returns what counts the transformations of a resource; write and read are the prefixes by which the two directions are counted.
func (m *metrics) transformations(resource, write, read string) *transformations {
	return &transformations{m: m, resource: resource, writes: direction{name: "to_storage", prefix: write}, reads: direction{name: "from_storage", prefix: read}}
}

func (t *transformations) toStorage(began time.Time, err error)   { t.observe(&t.writes, began, err) }
func (t *transformations) fromStorage(began time.Time, err error) { t.observe(&t.reads, began, err) }

func (t *transformations) observe(d *direction, began time.Time, err error) {
	if err != nil {
		t.m.operations.WithLabelValues(t.resource, d.name, d.prefix, statusOf(err)).Inc()
		return
	}
	d.once.Do(func() {
		d.count = t.m.operations.WithLabelValues(t.resource, d.name, d.prefix, codes.OK.String())
		d.seconds = t.m.latencies.WithLabelValues(d.name, d.prefix)
	})
	d.count.Inc()
	d.seconds.Observe(time.Since(began).Seconds())
}

// statusOf returns the gRPC status of an error, for metrics.
func statusOf(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code().String()
	}
	return "unknown-non-grpc"
}
