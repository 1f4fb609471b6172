package podnodeselector

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/lister"
	"skiff/internal/apiserver/objects"
)

// Name is the plugin's name in flags and in configuration files.
const Name = "PodNodeSelector"

// New returns the plugin.
func New(r objects.Reader, c Config) admission.Plugin { return &plugin{r, c} }

type plugin struct {
	objects objects.Reader
	config  Config
}

// annotation of a namespace has the node selector of its pods.
const annotation = "scheduler.alpha.kubernetes.io/node-selector"

var pods = corev1.Resource("pods")

func (*plugin) Name() string { return Name }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Subresource == "" && a.Is(pods)
}

// Admit adds the selector of the namespace to that of the pod.
func (p *plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	selector, err := p.check(ctx, a.Namespace, pod)
	if err != nil {
		return err
	}
	if len(selector) > 0 {
		pod.Spec.NodeSelector = labels.Merge(selector, pod.Spec.NodeSelector)
	}
	return p.checkAllowed(a.Namespace, pod)
}

// Validate refuses a pod whose node selector contradicts that of the namespace, or has labels that the namespace may not use.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	if _, err := p.check(ctx, a.Namespace, pod); err != nil {
		return err
	}
	return p.checkAllowed(a.Namespace, pod)
}

// check returns the node selector of the pod's namespace, or an error if that of the pod contradicts it.
func (p *plugin) check(ctx context.Context, name string, pod *corev1.Pod) (labels.Set, error) {
	namespace, err := lister.Namespace(ctx, p.objects, name)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("namespace %s does not exist", name))
	}
	selector := p.config.fallback
	if text, ok := namespace.Annotations[annotation]; ok {
		if selector, err = labels.ConvertSelectorToLabelsMap(text); err != nil {
			return nil, err
		}
	}
	if labels.Conflicts(selector, pod.Spec.NodeSelector) {
		return nil, apierrors.NewForbidden(pods, pod.Name, errors.New("pod node label selector conflicts with its namespace node label selector"))
	}
	return selector, nil
}

// checkAllowed refuses a pod whose node selector has a label that the configuration does not allow in the namespace. Without labels there it allows all.
func (p *plugin) checkAllowed(namespace string, pod *corev1.Pod) error {
	allowed := p.config.allowed[namespace]
	if len(allowed) == 0 {
		return nil
	}
	for key, value := range pod.Spec.NodeSelector {
		if of, ok := allowed[key]; !ok || of != value {
			return apierrors.NewForbidden(pods, pod.Name, errors.New("pod node label selector labels conflict with its namespace whitelist"))
		}
	}
	return nil
}
