// Package runtimeclass applies the runtime class that a pod names: what running it costs on top, and where it can run.
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

// Admit sets the pod's overhead, and adds to its node selector and tolerations.
func (p *plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	pod, class, err := p.prepare(ctx, a)
	if err != nil || class == nil {
		return err
	}
	if overhead := class.Overhead; overhead != nil {
		if len(pod.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(overhead.PodFixed, pod.Spec.Overhead) {
			return a.Forbidden(errOtherOverhead)
		}
		pod.Spec.Overhead = overhead.PodFixed.DeepCopy()
	}
	if class.Scheduling == nil {
		return nil
	}
	return schedule(a, pod, class.Scheduling.DeepCopy())
}

var (
	errOtherOverhead = errors.New("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
	errOwnOverhead   = errors.New("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
)

// schedule restricts a pod to nodes that have the runtime. s becomes the pod's.
func schedule(a *admission.Attributes, pod *corev1.Pod, s *nodev1.Scheduling) error {
	if pod.Spec.NodeSelector == nil {
		pod.Spec.NodeSelector = s.NodeSelector
	} else {
		for _, key := range slices.Sorted(maps.Keys(s.NodeSelector)) {
			if own, ok := pod.Spec.NodeSelector[key]; ok && own != s.NodeSelector[key] {
				return a.Forbidden(fmt.Errorf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s",
					key, s.NodeSelector[key], key, own))
			}
		}
		maps.Copy(pod.Spec.NodeSelector, s.NodeSelector)
	}
	pod.Spec.Tolerations = merge(slices.Concat(pod.Spec.Tolerations, s.Tolerations))
	return nil
}

// Validate checks that a pod's overhead is its class's and nobody else's.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	pod, class, err := p.prepare(ctx, a)
	switch {
	case err != nil || pod == nil:
		return err
	case class == nil || class.Overhead == nil:
		if pod.Spec.Overhead != nil {
			return a.Forbidden(errOwnOverhead)
		}
	case !equality.Semantic.DeepEqual(class.Overhead.PodFixed, pod.Spec.Overhead):
		return a.Forbidden(errOtherOverhead)
	}
	return nil
}

// prepare finds a pod's class. A class that the cache does not have may be newer than the cache.
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
