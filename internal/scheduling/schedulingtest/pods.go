package schedulingtest

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func (g *generator) pod(name string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: pick(g, namespaces...), UID: uid(name), Labels: g.labels()}}
	for i := range g.between(1, 3) {
		p.Spec.Containers = append(p.Spec.Containers, g.container(fmt.Sprint("c", i)))
	}
	for i := 0; g.chance(20); i++ {
		c := g.container(fmt.Sprint("i", i))
		if g.chance(40) {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if g.chance(10) {
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("30Mi")}
	}
	if g.chance(12) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: g.requests()}
		for name := range p.Spec.Resources.Requests {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != "hugepages-2Mi" {
				delete(p.Spec.Resources.Requests, name)
			}
		}
	}
	if g.chance(10) {
		p.Spec.Volumes = []corev1.Volume{{Name: "image", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: pick(g, images...)}}}}
	}
	for g.chance(30) && len(p.Spec.Tolerations) < 3 {
		p.Spec.Tolerations = append(p.Spec.Tolerations, g.toleration())
	}
	if g.chance(10) {
		p.Spec.HostNetwork, p.Spec.HostUsers = true, ptr.To(false)
	}
	if g.chance(10) {
		p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
	}
	if g.chance(40) {
		p.OwnerReferences = g.owner()
	}
	if g.chance(20) {
		p.Spec.NodeSelector = map[string]string{pick(g, "disk", "rack", corev1.LabelTopologyZone): pick(g, "ssd", "r1", "z1")}
	}
	if g.chance(55) {
		p.Spec.Affinity = g.affinity()
	}
	for g.chance(40) && len(p.Spec.TopologySpreadConstraints) < 3 {
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, g.spread())
	}
	return p
}

func (g *generator) requests() corev1.ResourceList {
	list := corev1.ResourceList{}
	if g.chance(70) {
		list[corev1.ResourceCPU] = resource.MustParse(pick(g, "0", "100m", "250m", "1", "1500m"))
	}
	if g.chance(70) {
		list[corev1.ResourceMemory] = resource.MustParse(pick(g, "0", "64Mi", "300M", "1Gi", "1536Mi"))
	}
	if g.chance(15) {
		list[corev1.ResourceEphemeralStorage] = resource.MustParse(pick(g, "1Gi", "6Gi"))
	}
	if g.chance(15) {
		list["example.com/gpu"] = resource.MustParse(pick(g, "0", "1", "2"))
	}
	if g.chance(8) {
		list["other.example/fpga"] = resource.MustParse("1")
	}
	if g.chance(8) {
		list["hugepages-2Mi"] = resource.MustParse(pick(g, "16Mi", "128Mi"))
	}
	return list
}

// setAllocated puts a running pod in the middle of a resize.
func (g *generator) setAllocated(p *corev1.Pod) {
	if !g.chance(20) {
		return
	}
	for _, c := range p.Spec.Containers {
		status := corev1.ContainerStatus{Name: c.Name}
		if g.chance(70) {
			status.AllocatedResources = g.requests()
		}
		if g.chance(70) {
			status.Resources = &corev1.ResourceRequirements{Requests: g.requests()}
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, status)
	}
	if g.chance(20) {
		p.Status.Resources, p.Status.AllocatedResources = &corev1.ResourceRequirements{Requests: g.requests()}, g.requests()
	}
	if g.chance(20) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
	}
}

func (g *generator) container(name string) corev1.Container {
	c := corev1.Container{Name: name, Image: pick(g, images...), Resources: corev1.ResourceRequirements{Requests: g.requests()}}
	for g.chance(15) {
		c.Ports = append(c.Ports, corev1.ContainerPort{HostPort: pick[int32](g, 0, 80, 443, 8080), HostIP: pick(g, "", "0.0.0.0", "10.0.0.1", "10.0.0.2"),
			Protocol: pick(g, "", corev1.ProtocolTCP, corev1.ProtocolUDP)})
	}
	return c
}

func (g *generator) toleration() corev1.Toleration {
	return corev1.Toleration{Key: pick(g, "", "dedicated", "flaky", corev1.TaintNodeUnschedulable), Value: pick(g, "", "x"),
		Operator: pick(g, "", corev1.TolerationOpEqual, corev1.TolerationOpExists),
		Effect:   pick(g, "", "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)}
}

func (g *generator) affinity() *corev1.Affinity {
	a := &corev1.Affinity{}
	if g.chance(40) {
		a.NodeAffinity = g.nodeAffinity()
	}
	if g.chance(45) {
		a.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: g.terms(40), PreferredDuringSchedulingIgnoredDuringExecution: g.weightedTerms()}
	}
	if g.chance(55) {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: g.terms(50), PreferredDuringSchedulingIgnoredDuringExecution: g.weightedTerms()}
	}
	return a
}

func (g *generator) nodeAffinity() *corev1.NodeAffinity {
	a := &corev1.NodeAffinity{}
	if g.chance(60) {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
		for range g.between(0, 2) {
			a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = append(a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, g.nodeTerm())
		}
	}
	for g.chance(50) && len(a.PreferredDuringSchedulingIgnoredDuringExecution) < 3 {
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: int32(g.between(1, 100)), Preference: g.nodeTerm()})
	}
	return a
}

func (g *generator) nodeTerm() (t corev1.NodeSelectorTerm) {
	for g.chance(60) && len(t.MatchExpressions) < 2 {
		r := corev1.NodeSelectorRequirement{Key: pick(g, "disk", "rack", corev1.LabelTopologyZone)}
		switch r.Operator = pick(g, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist,
			corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt); r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			r.Values = append(some(g, 40, "ssd", "hdd", "r1", "r2", "z1", "z2"), "r3")
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			r.Key, r.Values = "cores", []string{strconv.Itoa(g.between(2, 7))}
			if g.chance(5) {
				r.Values = []string{"many"}
			}
		}
		t.MatchExpressions = append(t.MatchExpressions, r)
	}
	for g.chance(25) && len(t.MatchFields) < 2 {
		t.MatchFields = append(t.MatchFields, corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField,
			Operator: pick(g, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), Values: []string{pick(g, "node-00", "node-01", "node-02")}})
	}
	return t
}

func (g *generator) terms(percent int) (out []corev1.PodAffinityTerm) {
	for g.chance(percent) && len(out) < 3 {
		out = append(out, g.term())
	}
	return out
}

func (g *generator) weightedTerms() (out []corev1.WeightedPodAffinityTerm) {
	for g.chance(45) && len(out) < 3 {
		out = append(out, corev1.WeightedPodAffinityTerm{Weight: int32(g.between(1, 100)), PodAffinityTerm: g.term()})
	}
	return out
}

func (g *generator) term() corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{LabelSelector: g.selector(), TopologyKey: pick(g, topologyKeys...)}
	if g.chance(20) {
		t.Namespaces = some(g, 50, namespaces...)
	}
	switch {
	case g.chance(10):
		t.NamespaceSelector = &metav1.LabelSelector{}
	case g.chance(15):
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": pick(g, "a", "b")}}
	}
	return t
}

func (g *generator) spread() corev1.TopologySpreadConstraint {
	c := corev1.TopologySpreadConstraint{MaxSkew: int32(g.between(1, 3)), TopologyKey: pick(g, topologyKeys...),
		WhenUnsatisfiable: pick(g, corev1.DoNotSchedule, corev1.ScheduleAnyway), LabelSelector: g.selector()}
	if c.WhenUnsatisfiable == corev1.DoNotSchedule && g.chance(30) {
		c.MinDomains = ptr.To(int32(g.between(1, 4)))
	}
	if g.chance(30) {
		c.NodeAffinityPolicy = ptr.To(pick(g, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
	}
	if g.chance(30) {
		c.NodeTaintsPolicy = ptr.To(pick(g, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore))
	}
	if g.chance(20) {
		c.MatchLabelKeys = some(g, 60, "pod-template-hash", "tier")
	}
	return c
}
