package oidc

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const prefix = "apiserver_authentication_jwt_authenticator_"

// Metrics count what issuers do, under upstream's names. A nil Metrics counts nothing. The label apiserver_id_hash is empty: servers have no ID.
type Metrics struct {
	latency *prometheus.HistogramVec
	fetches *prometheus.GaugeVec
	keySets *prometheus.GaugeVec
	reloads *prometheus.CounterVec
	reload  *prometheus.GaugeVec
	config  *prometheus.GaugeVec

	mu sync.Mutex // held while the one series of an issuer or the file is replaced
}

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + "latency_seconds",
			Help:    "Latency of jwt authentication operations in seconds. This is the time spent authenticating a token for cache miss only (i.e. when the token is not found in the cache).",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, []string{"result", "jwt_issuer_hash"}),
		fetches: gauge(prefix+"jwks_fetch_last_timestamp_seconds", "Timestamp of the last successful or failed JWKS fetch split by result, api server identity and jwt issuer for the JWT authenticator.",
			"result", "jwt_issuer_hash", "apiserver_id_hash"),
		keySets: gauge(prefix+"jwks_fetch_last_key_set_info", "Information about the last JWKS fetched by the JWT authenticator with hash as label, split by api server identity and jwt issuer.",
			"jwt_issuer_hash", "apiserver_id_hash", "hash"),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_authentication_config_controller_automatic_reloads_total",
			Help: "Total number of automatic reloads of authentication configuration split by status and apiserver identity."}, []string{"status", "apiserver_id_hash"}),
		reload: gauge("apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
			"Timestamp of the last automatic reload of authentication configuration split by status and apiserver identity.", "status", "apiserver_id_hash"),
		config: gauge("apiserver_authentication_config_controller_last_config_info",
			"Information about the last applied authentication configuration with hash as label, split by apiserver identity.", "apiserver_id_hash", "hash"),
	}
	registry.MustRegister(m.latency, m.fetches, m.keySets, m.reloads, m.reload, m.config)
	return m
}

func hashOf(data string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(data))) }

func outcome(ok bool) string {
	if ok {
		return "success"
	}
	return "failure"
}

func (m *Metrics) authenticated(issuer string, ok bool, took time.Duration) {
	if m != nil {
		m.latency.WithLabelValues(outcome(ok), hashOf(issuer)).Observe(took.Seconds())
	}
}

// fetched counts that an issuer's keys were fetched, unless its configuration is no longer in use.
func (m *Metrics) fetched(ctx context.Context, issuer string, keySet []byte, ok bool) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	m.fetches.WithLabelValues(outcome(ok), hashOf(issuer), "").SetToCurrentTime()
	if ok {
		m.keySets.DeletePartialMatch(prometheus.Labels{"jwt_issuer_hash": hashOf(issuer)})
		m.keySets.WithLabelValues(hashOf(issuer), "", hashOf(string(keySet))).Set(1)
	}
}

// forget removes the series of an issuer that is no longer configured.
func (m *Metrics) forget(issuer string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, series := range []*prometheus.GaugeVec{m.fetches, m.keySets} {
		series.DeletePartialMatch(prometheus.Labels{"jwt_issuer_hash": hashOf(issuer)})
	}
	m.latency.DeletePartialMatch(prometheus.Labels{"jwt_issuer_hash": hashOf(issuer)})
}

// reloaded counts that the file was reloaded, or could not be.
func (m *Metrics) reloaded(ok bool) {
	if m != nil {
		m.reloads.WithLabelValues(outcome(ok), "").Inc()
		m.reload.WithLabelValues(outcome(ok), "").SetToCurrentTime()
	}
}

// applied says which content of the file is in use.
func (m *Metrics) applied(data []byte) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.config.Reset()
	m.config.WithLabelValues("", hashOf(string(data))).Set(1)
}
