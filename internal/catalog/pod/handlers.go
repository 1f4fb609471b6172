package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"skiff/internal/catalog/check"
)

var uriSchemes = []corev1.URIScheme{corev1.URISchemeHTTP, corev1.URISchemeHTTPS}

// handler is the action of a probe or a lifecycle hook: exactly one field must be set.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
}

// lifecycle validates the hooks and probes of containers that may have them.
func (r *rules) lifecycle(p *check.Part, c *corev1.Container) {
	if c.Lifecycle != nil {
		at := p.Child("lifecycle")
		r.hook(at, "postStart", c.Lifecycle.PostStart)
		r.hook(at, "preStop", c.Lifecycle.PreStop)
	}
	if c.LivenessProbe != nil {
		r.probe(p.Child("livenessProbe"), c.LivenessProbe)
		onceIsSuccess(p.Child("livenessProbe"), c.LivenessProbe)
	}
	if c.ReadinessProbe != nil {
		at := p.Child("readinessProbe")
		r.probe(at, c.ReadinessProbe)
		if grace := c.ReadinessProbe.TerminationGracePeriodSeconds; grace != nil {
			at.Invalid("terminationGracePeriodSeconds", grace, "must not be set for readinessProbes")
		}
	}
	if c.StartupProbe != nil {
		r.probe(p.Child("startupProbe"), c.StartupProbe)
		onceIsSuccess(p.Child("startupProbe"), c.StartupProbe)
	}
}

func forbidLifecycle(p *check.Part, c *corev1.Container, why string) {
	for _, f := range [...]struct {
		name string
		set  bool
	}{
		{"lifecycle", c.Lifecycle != nil},
		{"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil},
	} {
		if f.set {
			p.Forbidden(f.name, why)
		}
	}
}

func (r *rules) hook(p *check.Part, name string, h *corev1.LifecycleHandler) {
	if h != nil {
		r.handler(p.Child(name), handler{exec: h.Exec, http: h.HTTPGet, tcp: h.TCPSocket, sleep: h.Sleep})
	}
}

func (r *rules) probe(p *check.Part, probe *corev1.Probe) {
	r.handler(p, handler{exec: probe.Exec, http: probe.HTTPGet, tcp: probe.TCPSocket, grpc: probe.GRPC})
	p.NonNegative("initialDelaySeconds", int64(probe.InitialDelaySeconds))
	p.NonNegative("timeoutSeconds", int64(probe.TimeoutSeconds))
	p.NonNegative("periodSeconds", int64(probe.PeriodSeconds))
	p.NonNegative("successThreshold", int64(probe.SuccessThreshold))
	p.NonNegative("failureThreshold", int64(probe.FailureThreshold))
	if grace := probe.TerminationGracePeriodSeconds; grace != nil && *grace <= 0 {
		p.Invalid("terminationGracePeriodSeconds", *grace, "must be greater than 0")
	}
}

// onceIsSuccess requires the success threshold 1 of liveness and startup probes.
func onceIsSuccess(p *check.Part, probe *corev1.Probe) {
	if probe.SuccessThreshold != 1 {
		p.Invalid("successThreshold", probe.SuccessThreshold, "must be 1")
	}
}

// handler validates the first action that is set, and refuses the others.
func (r *rules) handler(p *check.Part, h handler) {
	found := false
	one := func(name string, set bool, action func(*check.Part)) {
		switch {
		case !set:
		case found:
			p.Forbidden(name, "may not specify more than 1 handler type")
		default:
			found = true
			action(p.Child(name))
		}
	}
	one("exec", h.exec != nil, func(p *check.Part) { p.Present("command", len(h.exec.Command) > 0, "") })
	one("httpGet", h.http != nil, func(p *check.Part) { httpGet(p, h.http) })
	one("tcpSocket", h.tcp != nil, func(p *check.Part) { port(p, h.tcp.Port) })
	one("grpc", h.grpc != nil, func(p *check.Part) { port(p, intstr.FromInt32(h.grpc.Port)) })
	one("sleep", h.sleep != nil, func(p *check.Part) { r.sleep(p, h.sleep.Seconds) })
	if !found {
		p.Required("", "must specify a handler type")
	}
}

func httpGet(p *check.Part, h *corev1.HTTPGetAction) {
	p.Present("path", h.Path != "", "")
	port(p, h.Port)
	check.OneOf(p, "scheme", h.Scheme, uriSchemes...)
	for _, header := range h.HTTPHeaders {
		p.Format("httpHeaders", header.Name, utilvalidation.IsHTTPHeaderName)
	}
}

// port validates the number or the name of a port.
func port(p *check.Part, port intstr.IntOrString) {
	if port.Type == intstr.String {
		p.Format("port", port.StrVal, utilvalidation.IsValidPortName)
		return
	}
	for _, msg := range utilvalidation.IsValidPortNum(port.IntValue()) {
		p.Invalid("port", port.IntValue(), msg)
	}
}

// sleep checks that a hook does not sleep longer than the pod's termination grace period.
func (r *rules) sleep(p *check.Part, seconds int64) {
	if grace := r.spec.TerminationGracePeriodSeconds; grace != nil && (seconds < 0 || seconds > *grace) {
		p.Invalid("", seconds, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *grace))
	}
}
