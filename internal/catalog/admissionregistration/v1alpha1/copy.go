package v1alpha1

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyInto copies the object to another.
func (c *InitializerConfiguration) DeepCopyInto(to *InitializerConfiguration) {
	*to = *c
	c.ObjectMeta.DeepCopyInto(&to.ObjectMeta)
	to.Initializers = slices.Clone(c.Initializers)
	for i := range to.Initializers {
		rules := slices.Clone(to.Initializers[i].Rules)
		for j := range rules {
			rules[j].APIGroups, rules[j].APIVersions, rules[j].Resources = slices.Clone(rules[j].APIGroups), slices.Clone(rules[j].APIVersions), slices.Clone(rules[j].Resources)
		}
		to.Initializers[i].Rules = rules
	}
}

// DeepCopyObject implements runtime.Object.
func (c *InitializerConfiguration) DeepCopyObject() runtime.Object {
	to := &InitializerConfiguration{}
	c.DeepCopyInto(to)
	return to
}

// DeepCopyObject implements runtime.Object.
func (l *InitializerConfigurationList) DeepCopyObject() runtime.Object {
	to := &InitializerConfigurationList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&to.ListMeta)
	to.Items = slices.Clone(l.Items)
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&to.Items[i])
	}
	return to
}
