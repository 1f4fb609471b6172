package podsecurity

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/pod-security-admission/api"

	"skiff/internal/apiserver/admission"
)

// The modes and decisions as the metrics name them.
const (
	enforce = "enforce"
	audit   = "audit"
	warn    = "warn"

	allow = "allow"
	deny  = "deny"
)

// served is the Kubernetes version of this API server. Namespace labels may name later versions.
var served = api.MajorMinorVersion(1, 37)

// metrics have upstream's names and labels. podCreates and podUpdates, which most writes count in, need no lookup by labels.
type metrics struct {
	evaluations, exemptions, errors *prometheus.CounterVec

	podCreates, podUpdates prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pod_security_evaluations_total",
			Help: "Number of policy evaluations that occurred, not counting ignored or exempt requests."},
			[]string{"decision", "policy_level", "policy_version", "mode", "request_operation", "resource", "subresource"}),
		exemptions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pod_security_exemptions_total",
			Help: "Number of exempt requests, not counting ignored or out of scope requests."},
			[]string{"request_operation", "resource", "subresource"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pod_security_errors_total",
			Help: "Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted profile being used for evaluation."},
			[]string{"fatal", "request_operation", "resource", "subresource"}),
	}
	m.podCreates = m.evaluations.WithLabelValues(allow, string(api.LevelPrivileged), "latest", enforce, "create", "pod", "")
	m.podUpdates = m.evaluations.WithLabelValues(allow, string(api.LevelPrivileged), "latest", enforce, "update", "pod", "")
	return m
}

func (m *metrics) register(r prometheus.Registerer) {
	r.MustRegister(m.evaluations, m.exemptions, m.errors)
}

func (m *metrics) evaluated(decision string, level api.LevelVersion, mode string, a *admission.Attributes) {
	if decision == allow && mode == enforce && level.Level == api.LevelPrivileged && a.Subresource == "" {
		if a.Operation == admission.Create {
			m.podCreates.Inc()
		} else {
			m.podUpdates.Inc()
		}
		return
	}
	version := "future"
	switch {
	case level.Version.Latest(), level.Level == api.LevelPrivileged:
		version = "latest"
	case !served.Older(level.Version):
		version = level.Version.String()
	}
	m.evaluations.WithLabelValues(decision, string(level.Level), version, mode, operation(a), kind(a), a.Subresource).Inc()
}

func (m *metrics) exempted(a *admission.Attributes) {
	m.exemptions.WithLabelValues(operation(a), kind(a), a.Subresource).Inc()
}

func (m *metrics) failed(fatal bool, a *admission.Attributes) {
	m.errors.WithLabelValues(strconv.FormatBool(fatal), operation(a), kind(a), a.Subresource).Inc()
}

func operation(a *admission.Attributes) string { return strings.ToLower(string(a.Operation)) }

func kind(a *admission.Attributes) string {
	switch {
	case a.Is(pods):
		return "pod"
	case a.Is(namespaces):
		return "namespace"
	default:
		return "controller"
	}
}
