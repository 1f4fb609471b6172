package limitranger

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/lister"
	"skiff/internal/apiserver/objects"
)

// New returns the plugin.
func New(r objects.Reader) admission.Plugin {
	return &plugin{lister.ByNamespace(r, corev1.Resource("limitranges"), prepare)}
}

type plugin struct {
	ranges *lister.Namespaced[*limitRange]
}

var (
	pods   = corev1.Resource("pods")
	claims = corev1.Resource("persistentvolumeclaims")
)

func (*plugin) Name() string { return "LimitRanger" }

// Handles reports whether the write can change the resources of a pod or the size of a claim, in a namespace that has LimitRanges.
func (p *plugin) Handles(a *admission.Attributes) bool {
	switch {
	case a.Is(pods) && (a.Creates() && a.Subresource == "" || a.Operation == admission.Update && a.Subresource == "resize"):
	case a.Is(claims) && (a.Operation == admission.Create || a.Operation == admission.Update) && a.Subresource == "":
	default:
		return false
	}
	return len(p.ranges.List(a.Namespace)) > 0
}

// Admit sets the default requests and limits of a pod's containers.
func (p *plugin) Admit(_ context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || a.Old != nil && a.Old.GetDeletionTimestamp() != nil {
		return nil
	}
	for _, r := range p.ranges.List(a.Namespace) {
		r.fill(pod)
	}
	return nil
}

// Validate refuses a pod or claim that violates a LimitRange.
func (p *plugin) Validate(_ context.Context, a *admission.Attributes) error {
	if a.Old != nil && a.Old.GetDeletionTimestamp() != nil {
		return nil
	}
	for _, r := range p.ranges.List(a.Namespace) {
		var errs []error
		switch obj := a.Object.(type) {
		case *corev1.Pod:
			errs = r.checkPod(obj)
		case *corev1.PersistentVolumeClaim:
			errs = r.checkClaim(obj)
		}
		if err := utilerrors.NewAggregate(errs); err != nil {
			return a.Forbidden(err)
		}
	}
	return nil
}
