package proxy

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// slimmer removes the fields that the proxy does not use from objects, and shares equal values among them, to save memory. The objects must not
// be shared with others. Each method is called by one informer only.
type slimmer struct {
	yes, no *bool
	names   map[string]*string // the shared names of nodes
}

func newSlimmer() *slimmer {
	return &slimmer{yes: ptr.To(true), no: ptr.To(false), names: map[string]*string{}}
}

// maxNames bounds the shared names of nodes; further names are not shared.
const maxNames = 10_000

func (s *slimmer) service(object any) (any, error) {
	o, ok := object.(*corev1.Service)
	if !ok {
		return object, nil
	}
	slimMeta(&o.ObjectMeta)
	o.Labels, o.Spec.Selector, o.Status.Conditions = nil, nil, nil
	return o, nil
}

func (s *slimmer) slice(object any) (any, error) {
	o, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return object, nil
	}
	slimMeta(&o.ObjectMeta)
	if name, ok := o.Labels[discoveryv1.LabelServiceName]; ok {
		o.Labels = map[string]string{discoveryv1.LabelServiceName: name}
	} else {
		o.Labels = nil
	}
	for i := range o.Endpoints {
		e := &o.Endpoints[i]
		e.TargetRef, e.Zone, e.Hostname, e.DeprecatedTopology = nil, nil, nil, nil
		e.Conditions = discoveryv1.EndpointConditions{Ready: s.bool(e.Conditions.Ready), Serving: s.bool(e.Conditions.Serving), Terminating: s.bool(e.Conditions.Terminating)}
		e.NodeName = s.name(e.NodeName)
	}
	return o, nil
}

func slimMeta(m *metav1.ObjectMeta) {
	m.ManagedFields, m.OwnerReferences, m.Finalizers, m.GenerateName = nil, nil, nil, ""
	if at, ok := m.Annotations[corev1.EndpointsLastChangeTriggerTime]; ok {
		m.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: at}
	} else {
		m.Annotations = nil
	}
}

func (s *slimmer) bool(b *bool) *bool {
	switch {
	case b == nil:
		return nil
	case *b:
		return s.yes
	}
	return s.no
}

func (s *slimmer) name(name *string) *string {
	if name == nil {
		return nil
	}
	known := s.names[*name]
	if known == nil {
		if len(s.names) >= maxNames {
			return name
		}
		known = ptr.To(*name)
		s.names[*known] = known
	}
	return known
}
