package scheduling

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
)

// nodeDeclaredFeatures refuses nodes that do not declare a kubelet feature that the pod needs.
type nodeDeclaredFeatures struct{ refused *Status }

func newNodeDeclaredFeatures() *nodeDeclaredFeatures {
	return &nodeDeclaredFeatures{refuse(NodeDeclaredFeatures, UnschedulableAndUnresolvable, "node(s) didn't match Pod's required features")}
}

// kubernetesVersion decides which features have to be declared: once all supported kubelets have a feature, none has to.
var kubernetesVersion = version.MustParseGeneric("1.37.1")

// neededFeatures returns the names of the kubelet features that a pod needs.
func neededFeatures(pod *corev1.Pod) []string {
	library := nodedeclaredfeatures.DefaultFramework
	set, err := library.InferForPodScheduling(&nodedeclaredfeatures.PodInfo{Spec: &pod.Spec}, kubernetesVersion)
	if err != nil || set.IsEmpty() {
		return nil
	}
	names, _ := library.Unmap(set)
	return names
}

func (*nodeDeclaredFeatures) Name() string { return NodeDeclaredFeatures }

func (*nodeDeclaredFeatures) EventsToRegister() []EventWithHint {
	return []EventWithHint{
		{NodeKind, Add | UpdateNodeDeclaredFeature, nil},
		{TargetPod, updatesOfPods, func(_ *Pod, e Event) bool { return !slices.Equal(e.OldPod.features, e.NewPod.features) }},
	}
}

func (p *nodeDeclaredFeatures) PreFilter(pod *Pod, _ *Snapshot) PreFilterResult {
	if len(pod.features) == 0 {
		return PreFilterResult{}
	}
	return PreFilterResult{Check: checkFunc(func(n *Node) *Status {
		for _, feature := range pod.features {
			if !slices.Contains(n.Status.DeclaredFeatures, feature) {
				return p.refused
			}
		}
		return nil
	})}
}
