package quota

import corev1 "k8s.io/api/core/v1"

var services = corev1.Resource("services")

const serviceCount corev1.ResourceName = "count/services"

type serviceEvaluator struct{ plain }

func (serviceEvaluator) Counts(name corev1.ResourceName) bool {
	switch name {
	case serviceCount, corev1.ResourceServices, corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		return true
	default:
		return false
	}
}

// Usage returns what a service requests: its node ports need not be allocated yet.
func (serviceEvaluator) Usage(obj Object) corev1.ResourceList {
	s, ok := obj.(*corev1.Service)
	if !ok {
		return nil
	}
	nodePorts, balancers := 0, 0
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		nodePorts = len(s.Spec.Ports)
	case corev1.ServiceTypeLoadBalancer:
		nodePorts, balancers = len(s.Spec.Ports), 1
		if allocate := s.Spec.AllocateLoadBalancerNodePorts; allocate != nil && !*allocate {
			nodePorts = 0
			for i := range s.Spec.Ports {
				if s.Spec.Ports[i].NodePort != 0 {
					nodePorts++
				}
			}
		}
	}
	return corev1.ResourceList{serviceCount: one(), corev1.ResourceServices: one(),
		corev1.ResourceServicesNodePorts: number(nodePorts), corev1.ResourceServicesLoadBalancers: number(balancers)}
}

func (serviceEvaluator) Charges(w Write) bool { return w.Subresource == "" }

// Frees reports whether a service changed to or from a type that quotas limit.
func (serviceEvaluator) Frees(new, old Object) bool {
	n, ok := new.(*corev1.Service)
	o, also := old.(*corev1.Service)
	return ok && also && countedType(n) != countedType(o)
}

func countedType(s *corev1.Service) corev1.ServiceType {
	if s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		return s.Spec.Type
	}
	return ""
}
