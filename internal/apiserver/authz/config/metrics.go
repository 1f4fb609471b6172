package config

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
)

// metrics are upstream's metrics of authorizers and of the configuration file.
type metrics struct {
	registry                       prometheus.Registerer
	decisions, reloads             *prometheus.CounterVec
	lastReload, configuration      *prometheus.GaugeVec
	registeredForConfigurationFile bool
}

func newMetrics(registry prometheus.Registerer) *metrics {
	const controller = "apiserver_authorization_config_controller_"
	m := &metrics{
		registry: registry,
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_authorization_decisions_total",
			Help: "Total number of terminal decisions made by an authorizer split by authorizer type, name, and decision."}, []string{"type", "name", "decision"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{Name: controller + "automatic_reloads_total",
			Help: "Total number of automatic reloads of authorization configuration split by status and apiserver identity."}, []string{"status", "apiserver_id_hash"}),
		lastReload: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: controller + "automatic_reload_last_timestamp_seconds",
			Help: "Timestamp of the last automatic reload of authorization configuration split by status and apiserver identity."}, []string{"status", "apiserver_id_hash"}),
		configuration: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: controller + "last_config_info",
			Help: "Information about the last applied authorization configuration with hash as label, split by apiserver identity."}, []string{"apiserver_id_hash", "hash"}),
	}
	registry.MustRegister(m.decisions)
	return m
}

// applied records the configuration that is in use.
func (m *metrics) applied(serverID string, data []byte) {
	if !m.registeredForConfigurationFile {
		m.registry.MustRegister(m.reloads, m.lastReload, m.configuration)
		m.registeredForConfigurationFile = true
	}
	m.configuration.Reset()
	m.configuration.WithLabelValues(hashOf([]byte(serverID)), hashOf(data)).Set(1)
}

// reloaded counts a reload.
func (m *metrics) reloaded(serverID, status string, now time.Time) {
	m.reloads.WithLabelValues(status, hashOf([]byte(serverID))).Inc()
	m.lastReload.WithLabelValues(status, hashOf([]byte(serverID))).Set(float64(now.UnixNano()) / 1e9)
}

func hashOf(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(data))
}

// counted is an authorizer whose decisions are counted.
type counted struct {
	authz.Authorizer
	name    string
	allowed prometheus.Counter
	denied  func() prometheus.Counter
}

var _ authz.RulesAuthorizer = (*counted)(nil)

// counted returns an authorizer that counts the decisions of another.
func (m *metrics) counted(mode, name string, a authz.Authorizer) *counted {
	return &counted{Authorizer: a, name: name, allowed: m.decisions.WithLabelValues(mode, name, "allowed"),
		denied: func() prometheus.Counter { return m.decisions.WithLabelValues(mode, name, "denied") }}
}

// Name returns the name of the authorizer in reasons.
func (c *counted) Name() string { return c.name }

// Authorize asks the authorizer.
func (c *counted) Authorize(ctx context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	decision, reason, err := c.Authorizer.Authorize(ctx, a)
	switch decision {
	case authz.Allow:
		c.allowed.Inc()
	case authz.Deny:
		c.denied().Inc()
	}
	return decision, reason, err
}

// RulesFor returns the rules of the authorizer.
func (c *counted) RulesFor(ctx context.Context, user *authn.User, namespace string) (authz.Rules, error) {
	return authz.RulesOf(ctx, c.Authorizer, user, namespace)
}
