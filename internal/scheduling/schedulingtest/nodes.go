package schedulingtest

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (g *generator) node(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid(name), Labels: g.nodeLabels(name)}}
	n.Spec.Unschedulable = g.chance(12)
	n.Spec.Taints = g.taints()
	n.Status.Allocatable = g.allocatable()
	for _, image := range images {
		if g.chance(30) {
			if _, tagged := imageSizes[image]; !tagged {
				image += ":latest"
			}
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: imageSizes[image]})
		}
	}
	n.Status.DeclaredFeatures = g.features()
	return n
}

func (g *generator) features() []string {
	return some(g, 50, "RestartAllContainersOnContainerExits", "UnknownFeature", "UserNamespacesHostNetworkSupport")
}

func (g *generator) nodeLabels(name string) map[string]string {
	labels := map[string]string{"cores": strconv.Itoa(g.between(1, 8))}
	if g.chance(94) {
		labels[corev1.LabelHostname] = name
	}
	if g.chance(88) {
		labels[corev1.LabelTopologyZone] = pick(g, "z1", "z2", "z3", "")
	}
	if g.chance(60) {
		labels["rack"] = pick(g, "r1", "r2", "r3")
	}
	if g.chance(50) {
		labels["disk"] = pick(g, "ssd", "hdd")
	}
	return labels
}

func (g *generator) taints() (out []corev1.Taint) {
	for g.chance(25) && len(out) < 3 {
		out = append(out, corev1.Taint{Key: pick(g, "dedicated", "flaky", corev1.TaintNodeUnschedulable), Value: pick(g, "", "x", "y"),
			Effect: pick(g, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)})
	}
	return out
}

func (g *generator) allocatable() corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse(pick(g, "1", "2", "3900m", "8")),
		corev1.ResourceMemory:           resource.MustParse(pick(g, "1Gi", "2Gi", "7500Mi", "16Gi")),
		corev1.ResourcePods:             resource.MustParse(pick(g, "3", "10", "110")),
		corev1.ResourceEphemeralStorage: resource.MustParse(pick(g, "5Gi", "100Gi")),
	}
	if g.chance(40) {
		list["example.com/gpu"] = resource.MustParse(pick(g, "0", "1", "4"))
	}
	if g.chance(30) {
		list["other.example/fpga"] = resource.MustParse("2")
	}
	if g.chance(30) {
		list["hugepages-2Mi"] = resource.MustParse("64Mi")
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU, corev1.ResourceEphemeralStorage, corev1.ResourcePods} {
		if g.chance(4) {
			delete(list, name)
		}
	}
	return list
}
