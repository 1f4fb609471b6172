package nodedeclaredfeaturevalidator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/objects"
)

// New returns the plugin.
func New(r objects.Reader) admission.Plugin { return &plugin{r} }

type plugin struct{ objects objects.Reader }

var (
	pods  = corev1.Resource("pods")
	nodes = corev1.Resource("nodes")

	// kubernetesVersion decides which features have to be declared: once all supported kubelets have a feature, none has to.
	kubernetesVersion = version.MustParseGeneric("1.37.1")
)

func (*plugin) Name() string { return "NodeDeclaredFeatureValidator" }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Update && (a.Subresource == "" || a.Subresource == "resize") && a.Is(pods)
}

// Validate refuses a change of the spec of a pod that its node does not declare the features for.
func (p *plugin) Validate(_ context.Context, a *admission.Attributes) error {
	pod, isPod := a.Object.(*corev1.Pod)
	old, wasPod := a.Old.(*corev1.Pod)
	if !isPod || !wasPod || pod.Spec.NodeName == "" || pod.Generation == old.Generation { // the generation changes with the spec
		return nil
	}
	if len(pod.Spec.InitContainers) != len(old.Spec.InitContainers) {
		return nil // which validation refuses; the library would panic
	}
	library := nodedeclaredfeatures.DefaultFramework
	needed, err := library.InferForPodUpdate(&nodedeclaredfeatures.PodInfo{Spec: &old.Spec, Status: &old.Status},
		&nodedeclaredfeatures.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, kubernetesVersion)
	if err != nil {
		return a.Forbidden(fmt.Errorf("failed to infer pod capability requirements: %w", err))
	}
	if needed.IsEmpty() {
		return nil
	}
	node, ok := p.objects.Get(nodes, "", pod.Spec.NodeName).(*corev1.Node)
	if !ok {
		return a.Forbidden(fmt.Errorf("node %q not found", pod.Spec.NodeName))
	}
	names, err := library.Unmap(needed)
	if err != nil {
		return a.Forbidden(fmt.Errorf("failed to match pod requirements against node %q: %w", node.Name, err))
	}
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(node.Status.DeclaredFeatures, name) })
	if len(names) > 0 {
		return a.Forbidden(fmt.Errorf("pod update requires features %s which are not available on node %q", strings.Join(names, ", "), node.Name))
	}
	return nil
}
