package metrics

import (
	corev1 "k8s.io/api/core/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"skiff/internal/catalog"
)

// NodeMetrics is what a node uses.
var NodeMetrics = catalog.Resource[metricsv1beta1.NodeMetrics]{
	Group: metricsv1beta1.GroupName, Version: "v1beta1", Kind: "NodeMetrics", Plural: "nodes",
	Verbs: verbs, Virtual: true, Complete: true,
}

// PodMetrics is what the containers of a pod use.
var PodMetrics = catalog.Resource[metricsv1beta1.PodMetrics]{
	Group: metricsv1beta1.GroupName, Version: "v1beta1", Kind: "PodMetrics", Plural: "pods", Namespaced: true,
	Verbs: verbs, Virtual: true, Complete: true,
}

var verbs = []string{"get", "list"}

// Resources returns the resources of the group. Their names have no singular, as metrics-server's.
func Resources() []*catalog.Info {
	infos := []*catalog.Info{NodeMetrics.Info(), PodMetrics.Info()}
	for _, info := range infos {
		info.Singular = ""
	}
	return infos
}

// Usage returns the usage of an object of the group: of a pod, the sum over its containers.
func Usage(obj catalog.Object) corev1.ResourceList {
	switch m := obj.(type) {
	case *metricsv1beta1.NodeMetrics:
		return m.Usage
	case *metricsv1beta1.PodMetrics:
		sum := corev1.ResourceList{}
		for _, c := range m.Containers {
			for name, quantity := range c.Usage {
				total := sum[name]
				total.Add(quantity)
				sum[name] = total
			}
		}
		return sum
	}
	return nil
}
