package runtimeclass

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/objects"
)

// New returns the plugin.
func New(r objects.Reader) admission.Plugin { return &plugin{r} }

type plugin struct{ objects objects.Reader }

var (
	pods    = corev1.Resource("pods")
	classes = nodev1.Resource("runtimeclasses")
)

func (*plugin) Name() string { return "RuntimeClass" }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Is(pods) && a.Subresource == "" && a.Operation == admission.Create
}

// Admit sets the pod's overhead, node selector and tolerations from its RuntimeClass.
func (p *plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	pod, class, err := p.prepare(ctx, a)
	if err != nil || class == nil {
		return err
	}
	if overhead := class.Overhead; overhead != nil {
		if len(pod.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(overhead.PodFixed, pod.Spec.Overhead) {
			return a.Forbidden(errOverheadMismatch)
		}
		pod.Spec.Overhead = overhead.PodFixed.DeepCopy()
	}
	if class.Scheduling == nil {
		return nil
	}
	return schedule(a, pod, class.Scheduling.DeepCopy())
}

var (
	errOverheadMismatch     = errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	errOverheadWithoutClass = errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
)

// schedule restricts a pod to nodes that have the runtime. The pod takes ownership of s.
func schedule(a *admission.Attributes, pod *corev1.Pod, s *nodev1.Scheduling) error {
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = s.NodeSelector
	} else {
		for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
			if value, ok := pod.Spec.NodeSelector[key]; ok && value != s.NodeSelector[key] {
				return a.Forbidden(fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s",
					key, s.NodeSelector[key], key, value))
			}
		}
		maps.Copy(pod.Spec.NodeSelector, s.NodeSelector)
	}
	pod.Spec.Tolerations = merge(slices.Concat(pod.Spec.Tolerations, s.Tolerations))
	return nil
}

// Validate refuses a pod whose overhead is not that of its RuntimeClass.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	pod, class, err := p.prepare(ctx, a)
	switch {
	case err != nil || pod == nil:
		return err
	case class == nil || class.Overhead == nil:
		if pod.Spec.Overhead != nil {
			return a.Forbidden(errOverheadWithoutClass)
		}
	case !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead):
		return a.Forbidden(errOverheadMismatch)
	}
	return nil
}

// prepare returns the pod and its RuntimeClass, nil if it names none. A class that the cache does not have is read from the store: it may be new.
func (p *plugin) prepare(ctx context.Context, a *admission.Attributes) (*corev1.Pod, *nodev1.RuntimeClass, error) {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || pod.Spec.RuntimeClassName == nil {
		return pod, nil, nil
	}
	name := *pod.Spec.RuntimeClassName
	if class, ok := p.objects.Get(classes, "", name).(*nodev1.RuntimeClass); ok {
		return pod, class, nil
	}
	obj, err := p.objects.Fresh(ctx, classes, "", name)
	if apierrors.IsNotFound(err) {
		return pod, nil, a.Forbidden(fmt.Errorf("pod rejected: RuntimeClass %q not found", name))
	}
	class, _ := obj.(*nodev1.RuntimeClass)
	return pod, class, err
}
