package defaulttolerationseconds

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
)

// Options are the tolerationSeconds for each taint: the flags --default-not-ready-toleration-seconds and
// --default-unreachable-toleration-seconds.
type Options struct{ NotReady, Unreachable int64 }

// Defaults are the default values of the flags.
var Defaults = Options{NotReady: 300, Unreachable: 300}

// New returns the plugin.
func New(o Options) admission.Plugin { return &plugin{o} }

type plugin struct{ Options }

var pods = corev1.Resource("pods")

func (*plugin) Name() string { return "DefaultTolerationSeconds" }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Is(pods) && a.Subresource == "" && (a.Operation == admission.Create || a.Operation == admission.Update)
}

// Admit adds the tolerations that the pod lacks.
func (p *plugin) Admit(_ context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	given := pod.Spec.Tolerations
	for _, toleration := range [...]struct {
		taint   string
		seconds int64
	}{{corev1.TaintNodeNotReady, p.NotReady}, {corev1.TaintNodeUnreachable, p.Unreachable}} {
		if !tolerates(given, toleration.taint) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: toleration.taint, Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &toleration.seconds})
		}
	}
	return nil
}

func tolerates(tolerations []corev1.Toleration, taint string) bool {
	for i := range tolerations {
		t := &tolerations[i]
		if (t.Key == taint || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}
