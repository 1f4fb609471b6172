package priority

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/lister"
	"skiff/internal/apiserver/objects"
)

// New returns the plugin.
func New(r objects.Reader) admission.Plugin {
	isDefault := func(c *schedulingv1.PriorityClass) bool { return c.GlobalDefault }
	// Two default classes can be created at the same moment. Then the one with the lower value is used.
	lower := func(a, b *schedulingv1.PriorityClass) int {
		return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.Name, b.Name))
	}
	return &plugin{objects: r, defaultClass: lister.Choose(r, classes, isDefault, lower)}
}

type plugin struct {
	objects      objects.Reader
	defaultClass *lister.Chosen[*schedulingv1.PriorityClass] // the class of pods that name none
}

var (
	pods    = corev1.Resource("pods")
	classes = schedulingv1.Resource("priorityclasses")
)

func (*plugin) Name() string { return "Priority" }

func (*plugin) Handles(a *admission.Attributes) bool {
	return (a.Operation == admission.Create || a.Operation == admission.Update) && a.Subresource == "" && (a.Is(pods) || a.Is(classes))
}

// Admit sets the priority and preemption policy of a new pod; an update that omits them keeps the old values.
func (p *plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	if a.Operation == admission.Create {
		return p.admitNew(ctx, a, &pod.Spec)
	}
	if old, ok := a.Old.(*corev1.Pod); ok {
		if pod.Spec.Priority == nil {
			pod.Spec.Priority = copied(old.Spec.Priority)
		}
		if pod.Spec.PreemptionPolicy == nil {
			pod.Spec.PreemptionPolicy = copied(old.Spec.PreemptionPolicy)
		}
	}
	return nil
}

// copied returns a pointer to a copy of *v, so that objects share no memory; nil if v is nil.
func copied[T any](v *T) *T {
	if v == nil {
		return nil
	}
	value := *v
	return &value
}

func (p *plugin) admitNew(ctx context.Context, a *admission.Attributes, spec *corev1.PodSpec) error {
	priority, policy, err := p.resolve(ctx, a, spec)
	if err != nil {
		return err
	}
	if spec.Priority != nil && *spec.Priority != priority {
		return a.Forbidden(fmt.Errorf("the integer value of priority (%d) must not be provided in pod spec; "+
			"priority admission controller computed %d from the given PriorityClass name", *spec.Priority, priority))
	}
	spec.Priority = &priority
	if policy == nil {
		return nil
	}
	if podPolicy := spec.PreemptionPolicy; podPolicy != nil && *podPolicy != *policy {
		return a.Forbidden(fmt.Errorf("the string value of PreemptionPolicy (%s) must not be provided in pod spec; "+
			"priority admission controller computed %s from the given PriorityClass name", *podPolicy, *policy))
	}
	spec.PreemptionPolicy = policy
	return nil
}

// resolve returns the priority and the preemption policy of a pod's class, which is the default class if the pod names none.
func (p *plugin) resolve(ctx context.Context, a *admission.Attributes, spec *corev1.PodSpec) (int32, *corev1.PreemptionPolicy, error) {
	if spec.PriorityClassName != "" {
		class, err := p.class(ctx, spec.PriorityClassName)
		if apierrors.IsNotFound(err) {
			return 0, nil, a.Forbidden(fmt.Errorf("no PriorityClass with name %v was found", spec.PriorityClassName))
		}
		if err != nil {
			return 0, nil, fmt.Errorf("failed to resolve PriorityClass with name %s: %w", spec.PriorityClassName, err)
		}
		return class.Value, copied(class.PreemptionPolicy), nil
	}
	if class, ok := p.defaultClass.Get(); ok {
		spec.PriorityClassName = class.Name
		return class.Value, copied(class.PreemptionPolicy), nil
	}
	policy := corev1.PreemptLowerPriority
	return defaultPriority, &policy, nil
}

// defaultPriority is the priority of pods without a class in a cluster without a default class.
const defaultPriority = 0

// class returns a PriorityClass, from the store if the cache does not have it: it may be new.
func (p *plugin) class(ctx context.Context, name string) (*schedulingv1.PriorityClass, error) {
	if class, ok := p.objects.Get(classes, "", name).(*schedulingv1.PriorityClass); ok {
		return class, nil
	}
	obj, err := p.objects.Fresh(ctx, classes, "", name)
	if err != nil {
		return nil, err
	}
	class, ok := obj.(*schedulingv1.PriorityClass)
	if !ok {
		return nil, fmt.Errorf("unexpected type %T", obj)
	}
	return class, nil
}

// Validate refuses a second default class.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	class, ok := a.Object.(*schedulingv1.PriorityClass)
	if !ok || !class.GlobalDefault {
		return nil
	}
	other, ok := p.defaultClass.Get()
	if !ok || a.Operation == admission.Update && other.Name == class.Name {
		return nil
	}
	// The cached class may no longer be the default: only the stored one decides.
	newest, err := p.objects.Fresh(ctx, classes, "", other.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("failed to get default priority class: %w", err)
	}
	if c, ok := newest.(*schedulingv1.PriorityClass); !ok || !c.GlobalDefault {
		return nil
	}
	return a.Forbidden(fmt.Errorf("PriorityClass %v is already marked as default. Only one default can exist", other.Name))
}
