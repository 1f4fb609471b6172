package scheduling

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"skiff/skifftest"
)

// testTimeout bounds every wait. Usually waits take a hundredth of it; test machines can be slow.
const testTimeout = 30 * time.Second

// cluster is a cluster of two hollow nodes, each with ten of an extended resource.
type cluster struct {
	*testing.T
	api kubernetes.Interface
	ctx context.Context
}

const things = corev1.ResourceName("example.com/things")

func start(t *testing.T) cluster {
	t.Helper()
	t.Parallel()
	server := skifftest.Start(t, skifftest.WithControllers(), skifftest.WithScheduler(), skifftest.WithHollowNodes(2))
	c := cluster{t, server.Client(), t.Context()}
	for _, node := range []string{"hollow-0", "hollow-1"} {
		patch := fmt.Sprintf(`{"status":{"capacity":{%q:"10"},"allocatable":{%q:"10"}}}`, things, things)
		_, err := c.api.CoreV1().Nodes().Patch(c.ctx, node, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
		c.ok(err)
	}
	for name, value := range map[string]int32{"low": 1, "medium": 100, "high": 1000} {
		_, err := c.api.SchedulingV1().PriorityClasses().Create(c.ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
		c.ok(err)
	}
	return c
}

func (c cluster) ok(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c cluster) eventually(holds func() (missing string)) {
	c.Helper()
	var missing string
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(3 * time.Millisecond) {
		if missing = holds(); missing == "" {
			return
		}
	}
	c.Fatalf("not within %v: %s", testTimeout, missing)
}

// pod returns a pod that requests a number of the resource; changes may modify it.
func pod(name string, want int, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []corev1.Container{{Name: "c", Image: "pause"}}}}
	if want > 0 {
		list := corev1.ResourceList{things: *resource.NewQuantity(int64(want), resource.DecimalSI)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list, Limits: list}
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func of(class string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.PriorityClassName = class }
}

func on(node string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node} }
}

func (c cluster) create(pods ...*corev1.Pod) {
	c.Helper()
	for _, p := range pods {
		_, err := c.api.CoreV1().Pods(p.Namespace).Create(c.ctx, p, metav1.CreateOptions{})
		c.ok(err)
	}
}

func (c cluster) get(namespace, name string) *corev1.Pod {
	c.Helper()
	p, err := c.api.CoreV1().Pods(namespace).Get(c.ctx, name, metav1.GetOptions{})
	c.ok(err)
	return p
}

// runs waits until pods run, and returns the node of the last one.
func (c cluster) runs(pods ...string) (node string) {
	c.Helper()
	for _, name := range pods {
		c.eventually(func() string {
			p := c.get("default", name)
			if node = p.Spec.NodeName; p.Status.Phase != corev1.PodRunning {
				return fmt.Sprintf("%s Running: %+v", name, p.Status)
			}
			return ""
		})
	}
	return node
}

// refused waits until a pod is unschedulable for a reason, with an Event about it.
func (c cluster) refused(name, because string) {
	c.Helper()
	c.eventually(func() string {
		p := c.get("default", name)
		i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
		if i < 0 || p.Status.Conditions[i].Reason != corev1.PodReasonUnschedulable || !strings.Contains(p.Status.Conditions[i].Message, because) {
			return fmt.Sprintf("%s refused because of %s: %+v", name, because, p.Status.Conditions)
		}
		events, err := c.api.CoreV1().Events("default").List(c.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=FailedScheduling"})
		c.ok(err)
		if len(events.Items) == 0 {
			return "an event"
		}
		return ""
	})
}

// goes waits until a pod is terminating or deleted.
func (c cluster) goes(name string) {
	c.Helper()
	c.eventually(func() string {
		p, err := c.api.CoreV1().Pods("default").Get(c.ctx, name, metav1.GetOptions{})
		if err == nil && p.DeletionTimestamp == nil {
			return name + " to go"
		}
		return ""
	})
}

func TestResourceLimits(t *testing.T) {
	c := start(t)
	c.create(pod("a", 7, on("hollow-0")), pod("b", 7, on("hollow-1")))
	c.runs("a", "b")
	c.create(pod("another", 5))
	c.refused("another", "Insufficient "+string(things))
}

func TestNodeSelectorMatches(t *testing.T) {
	c := start(t)
	_, err := c.api.CoreV1().Nodes().Patch(c.ctx, "hollow-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"k":"v"}}}`), metav1.PatchOptions{})
	c.ok(err)
	c.create(pod("picky", 0, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"k": "v"} }))
	if node := c.runs("picky"); node != "hollow-1" {
		t.Errorf("it runs on %s", node)
	}
}

func TestNodeSelectorDoesNotMatch(t *testing.T) {
	c := start(t)
	c.create(pod("picky", 0, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"label": "nonempty"} }))
	c.refused("picky", "didn't match Pod's node affinity/selector")
}

func TestHostPorts(t *testing.T) {
	c := start(t)
	port := func(ip string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 5432, HostIP: ip, Protocol: corev1.ProtocolTCP}}
		}
	}
	c.create(pod("everywhere", 0, on("hollow-0"), port("")))
	c.runs("everywhere")
	c.create(pod("loopback", 0, on("hollow-0"), port("127.0.0.1")))
	c.refused("loopback", "didn't have free ports for the requested pod ports")
}

func TestPreemption(t *testing.T) {
	c := start(t)
	c.create(pod("low", 6, on("hollow-0"), of("low")), pod("medium", 6, on("hollow-1"), of("medium")))
	c.runs("low", "medium")
	c.create(pod("high", 6, of("high")))
	c.goes("low")
	if node := c.runs("high"); node != "hollow-0" {
		t.Errorf("it runs on %s", node)
	}
	if p := c.get("default", "medium"); p.DeletionTimestamp != nil {
		t.Error("more went than had to")
	}
}

func TestPreemptionByCriticalPod(t *testing.T) {
	c := start(t)
	c.create(pod("low", 6, on("hollow-0"), of("low")), pod("medium", 6, on("hollow-1"), of("medium")))
	c.runs("low", "medium")
	c.create(pod("critical", 6, of("system-cluster-critical"), func(p *corev1.Pod) { p.Namespace = "kube-system" }))
	c.goes("low")
	c.eventually(func() string {
		if p := c.get("kube-system", "critical"); p.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("the critical pod to run: %+v", p.Status)
		}
		return ""
	})
	if p := c.get("default", "medium"); p.DeletionTimestamp != nil {
		t.Error("more went than had to")
	}
}

func TestPreemptedPodSaysWhy(t *testing.T) {
	c := start(t)
	c.create(pod("victim", 10, on("hollow-0"), of("low"), func(p *corev1.Pod) { p.Finalizers = []string{"example.com/held"} }))
	c.runs("victim")
	c.create(pod("preemptor", 10, on("hollow-0"), of("high")))
	c.goes("victim")
	victim := c.get("default", "victim")
	i := slices.IndexFunc(victim.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
	if i < 0 || victim.Status.Conditions[i].Status != corev1.ConditionTrue || victim.Status.Conditions[i].Reason != corev1.PodReasonPreemptionByScheduler {
		t.Errorf("%+v", victim.Status.Conditions)
	}
	_, err := c.api.CoreV1().Pods("default").Patch(c.ctx, "victim", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	c.ok(err)
	c.runs("preemptor")
}

// TestPreemptionOfReplicaSets: pods of ReplicaSets are preempted only as often as needed: their replacements stay pending.
func TestPreemptionOfReplicaSets(t *testing.T) {
	c := start(t)
	w, err := c.api.CoreV1().Pods("default").Watch(c.ctx, metav1.ListOptions{})
	c.ok(err)
	defer w.Stop()
	for i, want := range []int64{2, 3, 4} {
		name := fmt.Sprintf("rs-%d", i+1)
		labels := map[string]string{"name": name}
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: int32(i + 1)}
		_, err := c.api.SchedulingV1().PriorityClasses().Create(c.ctx, class, metav1.CreateOptions{})
		c.ok(err)
		spec := pod("", int(want), of(name), on("hollow-0")).Spec
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}}}
		_, err = c.api.AppsV1().ReplicaSets("default").Create(c.ctx, set, metav1.CreateOptions{})
		c.ok(err)
		c.eventually(func() string {
			rs, err := c.api.AppsV1().ReplicaSets("default").Get(c.ctx, name, metav1.GetOptions{})
			c.ok(err)
			if rs.Status.ReadyReplicas != 1 {
				return name + " ready"
			}
			return ""
		})
	}
	// Nine of ten are taken. Five are wanted: the pods with the lowest priorities go, of two and of three.
	c.create(pod("preemptor", 5, of("high"), on("hollow-0")))
	c.runs("preemptor")
	pending := func(set string) bool {
		pods, err := c.api.CoreV1().Pods("default").List(c.ctx, metav1.ListOptions{LabelSelector: "name=" + set})
		c.ok(err)
		return len(pods.Items) == 1 && pods.Items[0].Status.Phase == corev1.PodPending && slices.ContainsFunc(pods.Items[0].Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
		})
	}
	c.eventually(func() string {
		if !pending("rs-1") || !pending("rs-2") {
			return "their replacements to wait for room"
		}
		return ""
	})
	made := map[string]int{}
	c.create(pod("last", 0, on("hollow-1")))
	for e := range w.ResultChan() {
		p := e.Object.(*corev1.Pod)
		if e.Type == watch.Added {
			made[p.Labels["name"]]++
		}
		if p.Name == "last" {
			break
		}
	}
	if made["rs-1"] != 2 || made["rs-2"] != 2 || made["rs-3"] != 1 {
		t.Errorf("pods that were made: %v", made)
	}
}

func TestPriorityClasses(t *testing.T) {
	c := start(t)
	classes := c.api.SchedulingV1().PriorityClasses()
	list, err := classes.List(c.ctx, metav1.ListOptions{})
	c.ok(err)
	var values []string
	for _, class := range list.Items {
		values = append(values, fmt.Sprintf("%s=%d", class.Name, class.Value))
	}
	if want := []string{"high=1000", "low=1", "medium=100", "system-cluster-critical=2000000000", "system-node-critical=2000001000"}; !slices.Equal(values, want) {
		t.Errorf("there are %v", values)
	}
	for _, class := range list.Items[:3] {
		class.Description = "updated"
		_, err := classes.Update(c.ctx, &class, metav1.UpdateOptions{})
		c.ok(err)
		_, err = classes.Patch(c.ctx, class.Name, types.JSONPatchType, []byte(`[{"op":"replace","path":"/description","value":"patched"}]`), metav1.PatchOptions{})
		c.ok(err)
		got, err := classes.Get(c.ctx, class.Name, metav1.GetOptions{})
		c.ok(err)
		if got.Description != "patched" {
			t.Errorf("%s is described as %q", class.Name, got.Description)
		}
		got.Value++
		if _, err := classes.Update(c.ctx, got, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			t.Errorf("its value was changed: %v", err)
		}
		if _, err := classes.Patch(c.ctx, class.Name, types.MergePatchType, []byte(`{"value":7}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			t.Errorf("its value was patched: %v", err)
		}
	}
}

func quantities(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for pair := range slices.Chunk(pairs, 2) {
		out[corev1.ResourceName(pair[0])] = resource.MustParse(pair[1])
	}
	return out
}

func TestLimitRange(t *testing.T) {
	c := start(t)
	ranges := c.api.CoreV1().LimitRanges("default")
	w, err := ranges.Watch(c.ctx, metav1.ListOptions{})
	c.ok(err)
	defer w.Stop()
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer,
		Min: quantities("cpu", "50m", "memory", "100Mi"), Max: quantities("cpu", "500m", "memory", "500Mi"),
		Default: quantities("cpu", "500m", "memory", "500Mi"), DefaultRequest: quantities("cpu", "100m", "memory", "200Mi")}}}}
	_, err = ranges.Create(c.ctx, limits, metav1.CreateOptions{})
	c.ok(err)
	if e := <-w.ResultChan(); e.Type != watch.Added {
		t.Errorf("saw %v", e)
	}
	sized := func(name string, requests, limits corev1.ResourceList) *corev1.Pod {
		return pod(name, 0, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: requests, Limits: limits}
		})
	}
	check := func(name string, requests, limits corev1.ResourceList) {
		t.Helper()
		got := c.get("default", name).Spec.Containers[0].Resources
		for kind, lists := range map[string][2]corev1.ResourceList{"requests": {got.Requests, requests}, "limits": {got.Limits, limits}} {
			for resource, want := range lists[1] {
				if q := lists[0][resource]; q.Cmp(want) != 0 {
					t.Errorf("%s: %s of %s are %v, not %v", name, kind, resource, q.String(), want.String())
				}
			}
		}
	}
	c.create(sized("nothing", nil, nil), sized("partly", quantities("cpu", "300m"), quantities("memory", "300Mi")))
	check("nothing", quantities("cpu", "100m", "memory", "200Mi"), quantities("cpu", "500m", "memory", "500Mi"))
	check("partly", quantities("cpu", "300m", "memory", "300Mi"), quantities("cpu", "500m", "memory", "300Mi"))
	for name, p := range map[string]*corev1.Pod{"too little": sized("little", quantities("cpu", "10m", "memory", "50Mi"), nil), "too much": sized("much", quantities("cpu", "600m"), quantities("cpu", "600m"))} {
		if _, err := c.api.CoreV1().Pods("default").Create(c.ctx, p, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	got, err := ranges.Get(c.ctx, "limits", metav1.GetOptions{})
	c.ok(err)
	got.Spec.Limits[0].Min = quantities("cpu", "9m", "memory", "10Mi")
	_, err = ranges.Update(c.ctx, got, metav1.UpdateOptions{})
	c.ok(err)
	c.eventually(func() string { // the server must have observed it
		if _, err := c.api.CoreV1().Pods("default").Create(c.ctx, sized("little", quantities("cpu", "10m", "memory", "50Mi"), nil), metav1.CreateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	c.ok(ranges.Delete(c.ctx, "limits", metav1.DeleteOptions{}))
	c.eventually(func() string {
		if _, err := c.api.CoreV1().Pods("default").Create(c.ctx, sized("much", quantities("cpu", "600m"), quantities("cpu", "600m")), metav1.CreateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

func TestLimitRangeCollection(t *testing.T) {
	c := start(t)
	_, err := c.api.CoreV1().Namespaces().Create(c.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	c.ok(err)
	for _, namespace := range []string{"default", "other"} {
		r := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "limits", Labels: map[string]string{"is": "mine"}}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, Min: quantities("cpu", "50m")}}}}
		_, err := c.api.CoreV1().LimitRanges(namespace).Create(c.ctx, r, metav1.CreateOptions{})
		c.ok(err)
	}
	find := func(selector string) int {
		t.Helper()
		list, err := c.api.CoreV1().LimitRanges("").List(c.ctx, metav1.ListOptions{LabelSelector: selector})
		c.ok(err)
		return len(list.Items)
	}
	if n := find("is=mine"); n != 2 {
		t.Errorf("found %d", n)
	}
	patched, err := c.api.CoreV1().LimitRanges("default").Patch(c.ctx, "limits", types.StrategicMergePatchType,
		[]byte(`{"metadata":{"labels":{"patched":"yes"}},"spec":{"limits":[{"type":"Container","min":{"cpu":"40m"}}]}}`), metav1.PatchOptions{})
	c.ok(err)
	if cpu := patched.Spec.Limits[0].Min[corev1.ResourceCPU]; patched.Labels["patched"] != "yes" || cpu.String() != "40m" {
		t.Errorf("%+v", patched)
	}
	c.ok(c.api.CoreV1().LimitRanges("default").DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "patched=yes"}))
	if n := find("is=mine"); n != 1 {
		t.Errorf("%d are left", n)
	}
}
