package scheduling

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
)

// nodeDeclaredFeatures keeps pods that need a feature of the kubelet off nodes that do not declare it.
type nodeDeclaredFeatures struct{ refused *Status }

func newNodeDeclaredFeatures() *nodeDeclaredFeatures {
	return &nodeDeclaredFeatures{refuse(NodeDeclaredFeatures, UnschedulableAndUnresolvable, "node(s) didn't match Pod's required features")}
}

// kubernetesVersion decides which features are still to be declared: once all kubelets have one, none needs to.
var kubernetesVersion = version.MustParseGeneric("1.37.1")

// neededFeatures are the features of the kubelet that a pod needs, by name.
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

func (*nodeDeclaredFeatures) Interests() []Interest {
	return []Interest{
		{NodeKind, Add | UpdateNodeDeclaredFeature, nil},
		{TargetPod, updatesOfPods, func(_ *Pod, e Event) bool { return !slices.Equal(e.OldPod.features, e.NewPod.features) }},
	}
}

func (p *nodeDeclaredFeatures) PrepareFilter(pod *Pod, _ *Snapshot) Prepared {
	if len(pod.features) == 0 {
		return Prepared{}
	}
	return Prepared{Check: checkFunc(func(n *Node) *Status {
		for _, feature := range pod.features {
			if !slices.Contains(n.Status.DeclaredFeatures, feature) {
				return p.refused
			}
		}
		return nil
	})}
}
