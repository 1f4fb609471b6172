package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/test/program"
)

func TestMain(m *testing.M) { program.Main(m) }

// hollowCluster is the program with three hollow nodes.
type hollowCluster struct {
	*testing.T
	data string
	api  kubernetes.Interface
}

func startHollow(t *testing.T, flags ...string) hollowCluster {
	t.Helper()
	c, p := start(t, append([]string{"server", "--no-node", "--hollow-nodes", "3", "--port", program.Port(t)}, flags...)...)
	wait(t, "three nodes that take pods, and an account for them", func() bool {
		nodes, err := c.api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatalf("%v\n%s", err, p.Log())
		}
		_, err = c.api.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil && len(nodes.Items) == 3 && !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return len(n.Spec.Taints) > 0 })
	})
	return c
}

// start starts a component of the program that serves the API.
func start(t *testing.T, args ...string) (hollowCluster, *program.Process) {
	t.Helper()
	c := hollowCluster{T: t, data: filepath.Join(t.TempDir(), "data")}
	p := program.Start(t, append(args, "--data-dir", c.data)...)
	admin := filepath.Join(c.data, "admin.kubeconfig")
	p.WaitFor(admin)
	config, err := clientcmd.BuildConfigFromFlags("", admin)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	if c.api, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return c, p
}

// run creates pods that request one CPU; change may modify them.
func (c hollowCluster) run(change func(*corev1.Pod), names ...string) {
	c.Helper()
	for _, name := range names {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "pause",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}}}
		if change != nil {
			change(pod)
		}
		if _, err := c.api.CoreV1().Pods("default").Create(c.Context(), pod, metav1.CreateOptions{}); err != nil {
			c.Fatal(err)
		}
	}
}

// nodes waits until pods run, and returns their nodes, each once.
func (c hollowCluster) nodes(names ...string) (on []string) {
	c.Helper()
	for _, name := range names {
		wait(c.T, name+" runs", func() bool {
			pod := c.get(name)
			if pod.Status.Phase != corev1.PodRunning {
				return false
			}
			on = append(on, pod.Spec.NodeName)
			return true
		})
	}
	slices.Sort(on)
	return slices.Compact(on)
}

func (c hollowCluster) get(name string) *corev1.Pod {
	c.Helper()
	pod, err := c.api.CoreV1().Pods("default").Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return pod
}

// scheduledBy waits for the Scheduled event of a pod, and returns its scheduler.
func (c hollowCluster) scheduledBy(name string) (scheduler string) {
	c.Helper()
	wait(c.T, "an event says who scheduled "+name, func() bool {
		events, err := c.api.CoreV1().Events("default").List(c.Context(), metav1.ListOptions{FieldSelector: "reason=Scheduled,involvedObject.name=" + name})
		if err != nil {
			c.Fatal(err)
		}
		for _, e := range events.Items {
			scheduler = e.ReportingController
		}
		return scheduler != ""
	})
	return scheduler
}

func (c hollowCluster) file(name, content string) string {
	c.Helper()
	path := filepath.Join(c.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		c.Fatal(err)
	}
	return path
}

// TestThreePodsOnThreeNodes: three pods are scheduled to three different nodes.
func TestThreePodsOnThreeNodes(t *testing.T) {
	c := startHollow(t)
	pods := []string{"a", "b", "c"}
	c.run(nil, pods...)
	if on := c.nodes(pods...); len(on) != 3 {
		t.Errorf("all on %v", on)
	}
	// Kept apart, there is no place for a fourth.
	apart := func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "apart"}
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}, TopologyKey: corev1.LabelHostname}}}}
	}
	c.run(apart, "x", "y", "z")
	if on := c.nodes("x", "y", "z"); len(on) != 3 {
		t.Errorf("all on %v", on)
	}
	c.run(apart, "fourth")
	wait(t, "it is said why the fourth cannot run", func() bool {
		return strings.Contains(fmt.Sprint(c.get("fourth").Status.Conditions), "3 node(s) didn't match pod anti-affinity rules")
	})
}

// TestPolicyFile: with a policy file of one predicate and one priority only these apply, beside those that no policy disables.
func TestPolicyFile(t *testing.T) {
	policy := filepath.Join(t.TempDir(), "policy.json")
	const text = `{"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "PodFitsResources"}], "priorities": [{"name": "LeastRequestedPriority", "weight": 1}]}`
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startHollow(t, "--policy-config-file", policy)
	c.run(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"nobody": "looks"} }, "a", "b", "c")
	if on := c.nodes("a", "b", "c"); len(on) != 3 {
		t.Errorf("all on %v, though others have more to offer", on)
	}
	c.run(func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("32")
	}, "huge")
	wait(t, "it is said why a pod that is too large cannot run", func() bool {
		return strings.Contains(fmt.Sprint(c.get("huge").Status.Conditions), "0/3 nodes are available: 3 Insufficient cpu.")
	})
}

// TestSecondScheduler: a second scheduler beside the first schedules the pods that name it, and only those.
func TestSecondScheduler(t *testing.T) {
	c := startHollow(t)
	named := func(p *corev1.Pod) { p.Spec.SchedulerName = "second" }
	c.run(named, "a", "b", "c")
	c.run(func(p *corev1.Pod) { p.Spec.SchedulerName = "nobody" }, "orphan")
	c.run(nil, "d")
	c.nodes("d")
	for _, name := range []string{"a", "b", "c"} {
		if node := c.get(name).Spec.NodeName; node != "" {
			t.Fatalf("%s is on %s, though its scheduler is not there yet", name, node)
		}
	}
	config := c.file("scheduler.yaml", `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {resourceName: second}
profiles:
- schedulerName: second
  plugins:
    score: {disabled: [{name: "*"}], enabled: [{name: NodeResourcesFit}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}}
`)
	program.Start(t, "scheduler", "--kubeconfig", filepath.Join(c.data, "scheduler.kubeconfig"), "--config", config)
	first := c.get("d").Spec.NodeName
	if on := c.nodes("a", "b", "c"); len(on) != 1 || on[0] != first {
		t.Errorf("on %v, not all on %s where most is taken", on, first)
	}
	c.run(nil, "e", "f")
	c.nodes("e", "f")
	for name, want := range map[string]string{"a": "second", "b": "second", "c": "second", "d": "default-scheduler", "e": "default-scheduler", "f": "default-scheduler"} {
		if by := c.scheduledBy(name); by != want {
			t.Errorf("%s was scheduled by %s", name, by)
		}
	}
	if pod := c.get("orphan"); pod.Spec.NodeName != "" || len(pod.Status.Conditions) > 0 {
		t.Errorf("the pod of a scheduler that is not there: %+v", pod.Status)
	}
}

// TestAlone: `skiff apiserver` is the API server and nothing else; a pod is scheduled once a scheduler runs.
func TestAlone(t *testing.T) {
	c, _ := start(t, "apiserver", "--secure-port", program.Port(t), "--disable-admission-plugins", "ServiceAccount")
	c.run(nil, "a")
	time.Sleep(500 * time.Millisecond) // a scheduler would report within milliseconds that there are no nodes
	if pod := c.get("a"); len(pod.Status.Conditions) > 0 {
		t.Errorf("somebody scheduled: %+v", pod.Status.Conditions)
	}
	program.Start(t, "scheduler", "--kubeconfig", filepath.Join(c.data, "scheduler.kubeconfig"))
	wait(t, "a scheduler says that there are no nodes", func() bool { return len(c.get("a").Status.Conditions) > 0 })
}
