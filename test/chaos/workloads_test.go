//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The nodes: some in three zones for all pods, two small ones with a taint, and one that is cordoned, where the
// disruptor binds pods without the scheduler.
const (
	openNodes  = 6
	tightNodes = 2
	zones      = 3
	nodeCPUs   = 32
	// tightCPUs is what a pod for the small nodes takes, tightFit how many of these a node has room for.
	tightCPUs = 10
	tightFit  = nodeCPUs / tightCPUs
	allNodes  = openNodes + tightNodes + 1
)

func nodeName(i int) string { return fmt.Sprint("hollow-", i) }

var elsewhere = nodeName(allNodes - 1)

const tightKey = "chaos/tight"

// style is a set of scheduling constraints of a Deployment's pods.
type style string

const (
	anyhow      style = "anyhow"      // wherever there is room
	onePort     style = "one port"    // a port of the node, so one pod per node
	apart       style = "apart"       // no two on one node
	zoneSpread  style = "zone spread" // as many in each zone
	nodeSpread  style = "node spread" // as many on each node
	together    style = "together"    // all in one zone
	notNearSide style = "not near side"
)

var styles = []style{anyhow, anyhow, onePort, apart, zoneSpread, nodeSpread, together, notNearSide}

func pod(app string, cpus int) corev1.PodTemplateSpec {
	grace := int64(1)
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "c", Image: "image:0",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(cpus), resource.DecimalSI)}}}}},
	}
}

// deployment returns a Deployment with a placement style, of a size that can always be rolled out.
func deployment(app string, how style, random *rand.Rand) *appsv1.Deployment {
	template := pod(app, 1+random.IntN(4))
	if random.IntN(2) == 0 {
		template.Annotations["hollow.skiff/ready-after"] = fmt.Sprint(random.IntN(120), "ms")
	}
	replicas, surge, unavailable := int32(2+random.IntN(6)), random.IntN(3), 1+random.IntN(2)
	spec := &template.Spec
	if how == anyhow && random.IntN(2) == 0 { // many at once
		replicas, surge, unavailable = int32(10+random.IntN(20)), random.IntN(10), 1+random.IntN(10)
		spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	zoned := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpExists}}}}}}
	switch how {
	case onePort:
		replicas, surge = int32(2+random.IntN(openNodes-3)), random.IntN(2)
		spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
	case apart:
		replicas, surge = int32(2+random.IntN(openNodes-3)), random.IntN(2)
		spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{LabelSelector: selector, TopologyKey: corev1.LabelHostname}}}}
	case zoneSpread, nodeSpread:
		key := corev1.LabelTopologyZone
		if how == nodeSpread {
			key = corev1.LabelHostname
		}
		spec.Affinity = &corev1.Affinity{NodeAffinity: zoned}
		spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: int32(1 + random.IntN(2)), TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selector}}
	case together:
		spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{LabelSelector: selector, TopologyKey: corev1.LabelTopologyZone}}}}
	case notNearSide:
		replicas, surge = 2, random.IntN(2)
		spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": sideApp}}, TopologyKey: corev1.LabelHostname}}}}
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector, Template: template}}
	if random.IntN(4) == 0 {
		d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	} else {
		most, fewest := intstr.FromInt(surge), intstr.FromInt(unavailable)
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &most, MaxUnavailable: &fewest}}
	}
	return d
}

const (
	webApp    = "web"
	sideApp   = "side"
	tightApp  = "tight"
	urgentApp = "urgent" // also the name of its priority class
)

// sideDeployment returns a small Deployment that is deleted during the round.
func sideDeployment(random *rand.Rand) *appsv1.Deployment {
	d := deployment(sideApp, anyhow, random)
	two := int32(2)
	d.Spec.Replicas, d.Spec.Strategy = &two, appsv1.DeploymentStrategy{}
	return d
}

// tightDeployment returns a Deployment with more pods than there is room for.
func tightDeployment() *appsv1.Deployment {
	return onTightNodes(tightApp, tightNodes*tightFit+2)
}

// urgentDeployment returns a Deployment that preempts some of the pods of tightDeployment.
func urgentDeployment(replicas int32) *appsv1.Deployment {
	d := onTightNodes(urgentApp, replicas)
	d.Spec.Template.Spec.PriorityClassName = urgentApp
	return d
}

func onTightNodes(app string, replicas int32) *appsv1.Deployment {
	template := pod(app, tightCPUs)
	template.Spec.NodeSelector = map[string]string{tightKey: "yes"}
	template.Spec.Tolerations = []corev1.Toleration{{Key: tightKey, Operator: corev1.TolerationOpExists}}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: appsv1.DeploymentSpec{Replicas: &replicas,
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Template: template}}
}

// job returns a Job that completes or fails.
func job(random *rand.Rand) *batchv1.Job {
	template := pod("job", 1)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	template.Annotations["hollow.skiff/runs-for"] = fmt.Sprint(20+random.IntN(250), "ms")
	completions, parallelism, mode, limit := int32(3+random.IntN(7)), int32(1+random.IntN(4)), batchv1.NonIndexedCompletion, int32(6)
	if random.IntN(2) == 0 {
		mode = batchv1.IndexedCompletion
	}
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Completions: &completions, Parallelism: &parallelism, CompletionMode: &mode}}
	if random.IntN(5) == 0 {
		template.Annotations["hollow.skiff/exit-code"] = "1"
		limit = 0
	}
	j.Spec.BackoffLimit, j.Spec.Template = &limit, template
	return j
}

func fails(j *batchv1.Job) bool { return j.Spec.Template.Annotations["hollow.skiff/exit-code"] == "1" }

func service() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: webApp}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": webApp}, Ports: []corev1.ServicePort{{Port: 80}}}}
}
