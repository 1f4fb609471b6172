package scheduler_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"skiff/internal/journey"
	"skiff/internal/scheduler"
)

// Three pods on three nodes are spread, and Events say so.
func TestThreeOnThree(t *testing.T) {
	c := newCluster(t)
	for i := range 3 {
		c.node(node(fmt.Sprint("n", i), "4"))
	}
	start(t, c.Server, scheduler.Config{})
	used := map[string]bool{}
	for i := range 3 {
		c.pod(pod(fmt.Sprint("p", i), ""))
	}
	for i := range 3 {
		name := fmt.Sprint("p", i)
		n := c.bound(name)
		used[n] = true
		c.event(name, "Normal Scheduled Binding default-scheduler Successfully assigned default/"+name+" to "+n)
	}
	if len(used) != 3 {
		t.Errorf("they are all on %v", used)
	}
}

// Why a pod is not scheduled is in its status and in an Event, in upstream's words.
func TestWhyNot(t *testing.T) {
	c := newCluster(t)
	start(t, c.Server, scheduler.Config{})
	c.pod(pod("early", "1"))
	c.refused("early", "no nodes available to schedule pods")
	c.event("early", "Warning FailedScheduling Scheduling default-scheduler no nodes available to schedule pods")
	c.node(node("small", "2"))
	c.bound("early")
	c.node(node("tainted", "8", func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	}))
	c.node(node("cordoned", "8", func(n *corev1.Node) { n.Spec.Unschedulable = true }))
	c.sees(3)
	c.pod(pod("big", "2"))
	message := "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. " +
		"preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is not helpful for scheduling."
	c.refused("big", message)
	c.event("big", "Warning FailedScheduling Scheduling default-scheduler "+message)

	attempts := c.attempts("big")
	if len(attempts) != 1 || attempts[0].Error != message || attempts[0].Attribute("looked at") != "3 of 3 nodes" {
		t.Fatalf("what its journey tells: %+v", attempts)
	}
	for node, plugin := range map[string]string{"small": "NodeResourcesFit", "tainted": "TaintToleration", "cordoned": "NodeUnschedulable"} {
		if why := attempts[0].Attribute(journey.AboutNode + node); !strings.HasPrefix(why, "refused by "+plugin+": ") {
			t.Errorf("why not %s: %q", node, why)
		}
	}
	c.patchNode("tainted", `{"spec":{"taints":null}}`)
	if n := c.bound("big"); n != "tainted" {
		t.Errorf("it went to %s", n)
	}
	condition := c.get("big").Status.Conditions
	if i := slices.IndexFunc(condition, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }); i < 0 || condition[i].Status != corev1.ConditionTrue {
		t.Errorf("its conditions: %+v", condition)
	}
	if attempts = c.attempts("big"); attempts[len(attempts)-1].Attribute("node") != "tainted" {
		t.Errorf("what its journey tells: %+v", attempts)
	}
}

// An event requeues exactly the pods that it may help.
func TestWakeUps(t *testing.T) {
	c := newCluster(t)
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	}
	c.node(node("full", "2"))
	c.node(node("tainted", "1", tainted))
	start(t, c.Server, scheduler.Config{})
	c.pod(pod("filler", "2"))
	c.bound("filler")
	c.pod(pod("big", "2"))
	c.pod(pod("small", "1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "tainted"} }))
	c.pod(pod("picky", "", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }))
	preemption := ". preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
	c.refused("big", "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). preemption: 0/2 nodes are available: "+
		"1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling.")
	c.refused("small", "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s)"+preemption)
	c.refused("picky", "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s)"+preemption)
	attempts := func() string {
		var all []string
		for _, name := range []string{"big", "small", "picky"} {
			all = append(all, fmt.Sprintf("%s %d", name, len(c.attempts(name))))
		}
		return strings.Join(all, ", ")
	}
	before := attempts()
	if before != "big 1, small 1, picky 1" {
		t.Fatalf("attempts at first: %s", before)
	}
	// The pods that were refused because of the taint are tried. So is the one that also needs more CPU: so far only the taint refused it on that node.
	c.patchNode("tainted", `{"spec":{"taints":null}}`)
	c.bound("small")
	eventually(t, "the others were tried", func() bool { return attempts() == "big 2, small 2, picky 2" })
	// A node with room, but not with what one of them needs.
	c.node(node("new", "2"))
	c.bound("big")
	eventually(t, "the picky one was not tried", func() bool { return attempts() == "big 3, small 2, picky 2" })
	// A pod is deleted, which does not help pods that were not refused for lack of room.
	c.end("filler")
	c.patchNode("full", `{"metadata":{"labels":{"disk":"ssd"}}}`)
	if n := c.bound("picky"); n != "full" {
		t.Errorf("the picky pod is on %s", n)
	}
	if now := attempts(); now != "big 3, small 2, picky 3" {
		t.Errorf("attempts at last: %s", now)
	}
}

// A pod of high priority preempts as few and unimportant pods as possible.
func TestPreemption(t *testing.T) {
	c := newCluster(t)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &intstr.IntOrString{IntVal: 1}, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"budget": "yes"}}}}
	if _, err := c.Client().PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	start(t, c.Server, scheduler.Config{})
	for name, value := range map[string]int32{"low": 1, "middle": 5, "high": 10, "modest": 10} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if name == "modest" {
			never := corev1.PreemptNever
			class.PreemptionPolicy = &never
		}
		if _, err := c.Client().SchedulingV1().PriorityClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	of := func(class string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.PriorityClassName, p.Labels = class, map[string]string{"class": class} }
	}
	c.node(node("n1", "4"))
	for name, class := range map[string]string{"a": "low", "b": "low", "m": "middle"} {
		c.pod(pod(name, "1", of(class), func(p *corev1.Pod) {
			if name == "b" {
				p.Labels["budget"] = "yes"
			}
		}))
		c.bound(name)
	}
	c.pod(pod("keep", "1", of("high")))
	c.bound("keep")
	c.pod(pod("modest", "1", of("modest")))
	c.refused("modest", "0/1 nodes are available: 1 Insufficient cpu. preemption: not eligible due to preemptionPolicy=Never.")
	if err := c.Client().CoreV1().Pods("default").Delete(t.Context(), "modest", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	preemptor := c.pod(pod("urgent", "1", of("high")))
	eventually(t, "a victim is chosen", func() bool { return c.get("a").DeletionTimestamp != nil })
	for _, name := range []string{"b", "m", "keep"} {
		if c.get(name).DeletionTimestamp != nil {
			t.Errorf("%s was evicted too", name)
		}
	}
	condition := c.get("a").Status.Conditions
	if i := slices.IndexFunc(condition, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }); i < 0 ||
		condition[i].Reason != "PreemptionByScheduler" || condition[i].Message != "default-scheduler: preempting to accommodate a higher priority pod" {
		t.Errorf("the victim's conditions: %+v", condition)
	}
	c.event("a", fmt.Sprintf("Normal Preempted Preempting default-scheduler Preempted by pod %s on node n1", preemptor.UID))
	eventually(t, "it is nominated", func() bool { return c.get("urgent").Status.NominatedNodeName == "n1" })
	// Room that was made for it is not taken by another.
	c.pod(pod("thief", "1", of("low")))
	c.refused("thief", "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.")
	c.end("a")
	if n := c.bound("urgent"); n != "n1" {
		t.Errorf("it is on %s", n)
	}
	if n := c.get("urgent").Status.NominatedNodeName; n != "" {
		t.Errorf("it is still nominated for %s", n)
	}
	if n := c.get("thief").Spec.NodeName; n != "" {
		t.Errorf("the room was taken by another pod")
	}
}

// Pods of a second scheduler, and of profiles of one, are scheduled by the plugins of their schedulerName.
func TestProfiles(t *testing.T) {
	c := newCluster(t)
	for i := range 4 {
		c.node(node(fmt.Sprint("n", i), "8", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}} }))
	}
	start(t, c.Server, load(t, `
profiles:
- schedulerName: default-scheduler
- schedulerName: packer
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
  plugins:
    score: {disabled: [{name: PodTopologySpread}, {name: NodeResourcesBalancedAllocation}]}
`))
	start(t, c.Server, load(t, "profiles: [{schedulerName: other, plugins: {multiPoint: {disabled: [{name: TaintToleration}]}}}]"))
	tolerant := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	by := func(scheduler string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.SchedulerName = scheduler }
	}
	spread, packed := map[string]bool{}, map[string]bool{}
	for i := range 4 {
		name := fmt.Sprint("spread", i)
		c.pod(pod(name, "1", tolerant))
		spread[c.bound(name)] = true
	}
	for i := range 4 {
		name := fmt.Sprint("packed", i)
		c.pod(pod(name, "1", tolerant, by("packer")))
		packed[c.bound(name)] = true
	}
	if len(spread) != 4 || len(packed) != 1 {
		t.Errorf("spread over %v, packed on %v", spread, packed)
	}
	c.pod(pod("careless", "1", by("other")))
	c.bound("careless")
	c.event("careless", "Normal Scheduled Binding other Successfully assigned default/careless to "+c.get("careless").Spec.NodeName)
	c.pod(pod("orphan", "1", by("nobody")))
	c.pod(pod("careful", "1"))
	c.refused("careful", "0/4 nodes are available: 4 node(s) had untolerated taint(s). preemption: 0/4 nodes are available: 4 Preemption is not helpful for scheduling.")
	if p := c.get("orphan"); p.Spec.NodeName != "" || len(p.Status.Conditions) > 0 {
		t.Errorf("somebody scheduled the pod of a scheduler that is not there: %+v", p.Status)
	}
}

// A policy file with one predicate and one priority works, and only those apply, besides the mandatory ones.
func TestPolicy(t *testing.T) {
	config, err := scheduler.LoadPolicy("", []byte(`{"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "PodFitsResources"}],
		"priorities": [{"name": "LeastRequestedPriority", "weight": 1}]}`))
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	start(t, c.Server, config)
	c.node(node("busy", "4"))
	c.pod(pod("first", "1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"nobody": "looks"} }))
	c.bound("first")
	c.node(node("idle", "4"))
	c.sees(2)
	c.pod(pod("second", "1"))
	if n := c.bound("second"); n != "idle" {
		t.Errorf("it is on %s", n)
	}
	c.pod(pod("huge", "8"))
	c.refused("huge", "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.")
}
