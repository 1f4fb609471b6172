package podtolerationrestriction

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/lister"
	"skiff/internal/apiserver/objects"
	catalogpod "skiff/internal/catalog/pod"
)

// Name is the plugin's name in flags and in configuration files.
const Name = "PodTolerationRestriction"

// New returns the plugin.
func New(r objects.Reader, c Config) admission.Plugin { return &plugin{r, c} }

type plugin struct {
	objects objects.Reader
	config  Config
}

// Annotations of namespaces. Their values are JSON lists of tolerations.
const (
	defaultsAnnotation  = "scheduler.alpha.kubernetes.io/defaultTolerations"
	whitelistAnnotation = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

var pods = corev1.Resource("pods")

func (*plugin) Name() string { return Name }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Is(pods) && a.Subresource == "" && (a.Operation == admission.Create || a.Operation == admission.Update)
}

// Admit adds the default tolerations to a new pod, and to any that is not BestEffort one of memory pressure.
func (p *plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	var added []corev1.Toleration
	if a.Operation == admission.Create {
		defaults, ok, err := p.annotated(ctx, a.Namespace, defaultsAnnotation)
		if err != nil {
			return err
		}
		if !ok {
			defaults = p.config.defaults
		}
		added = slices.Clone(defaults)
	}
	class := pod.Status.QOSClass
	if class == "" {
		class = catalogpod.QOSClass(pod)
	}
	if class != corev1.PodQOSBestEffort {
		added = append(added, corev1.Toleration{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	if len(added) > 0 {
		pod.Spec.Tolerations = merge(slices.Concat(pod.Spec.Tolerations, added))
	}
	return p.Validate(ctx, a)
}

// Validate refuses a pod with a toleration that its namespace does not allow.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || len(pod.Spec.Tolerations) == 0 {
		return nil
	}
	allowed, ok, err := p.annotated(ctx, a.Namespace, whitelistAnnotation)
	if err != nil {
		return err
	}
	scope := "namespace"
	if !ok {
		allowed, scope = p.config.whitelist, "cluster"
	}
	if !permits(allowed, pod.Spec.Tolerations) {
		return fmt.Errorf("pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", scope)
	}
	return nil
}

// annotated returns the tolerations that an annotation of a namespace has; ok is false if the namespace does not have the annotation.
func (p *plugin) annotated(ctx context.Context, name, annotation string) (list []corev1.Toleration, ok bool, err error) {
	namespace, err := lister.Namespace(ctx, p.objects, name)
	if err != nil && !apierrors.IsNotFound(err) {
		err = apierrors.NewInternalError(err)
	}
	if err != nil {
		return nil, false, err
	}
	text, ok := namespace.Annotations[annotation]
	if !ok || text == "" {
		return nil, ok, nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, false, err
	}
	return list, true, nil
}
