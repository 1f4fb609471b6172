package podtopologylabels

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// New returns the plugin.
func New(r objects.Reader) admission.Plugin { return &plugin{r} }

type plugin struct{ objects objects.Reader }

var (
	pods  = corev1.Resource("pods")
	nodes = corev1.Resource("nodes")

	copied = [...]string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion}
)

func (*plugin) Name() string { return "PodTopologyLabels" }

// Handles reports whether the write puts a pod on a node.
func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Create && a.Is(pods) && nodeOf(a.Object) != ""
}

// nodeOf returns the node that a new pod, or a binding, names.
func nodeOf(obj catalog.Object) string {
	switch o := obj.(type) {
	case *corev1.Pod:
		return o.Spec.NodeName
	case *corev1.Binding:
		if o.Target.Kind == "Node" {
			return o.Target.Name
		}
	}
	return ""
}

// Admit copies the labels of the node. Those that the pod has are overwritten. A node that is not there has none.
func (p *plugin) Admit(_ context.Context, a *admission.Attributes) error {
	node, ok := p.objects.Get(nodes, "", nodeOf(a.Object)).(*corev1.Node)
	if !ok {
		return nil
	}
	for _, key := range copied {
		value, ok := node.Labels[key]
		if !ok {
			continue
		}
		labels := a.Object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
			a.Object.SetLabels(labels)
		}
		labels[key] = value
	}
	return nil
}
