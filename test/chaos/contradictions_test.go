//go:build linux

package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// TestContradictions creates many objects that contradict themselves and one another. They block nothing: the same work takes as
// long beside them as without them, and no controller stays busy with them.
func TestContradictions(t *testing.T) {
	s := newServer(t, filepath.Join(t.TempDir(), "data"))
	s.flags = []string{"--hollow-nodes=5"}
	s.start()
	s.ready()
	c := contradictions{t, s.client(), s}
	c.await("a service account", func() bool {
		_, err := c.api.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	c.work("first") // everything is slower the first time
	alone := c.quickest("alone")
	idle := c.cpu()
	for _, contradict := range []func(){c.cyclicOwners, c.owners, c.selectors, c.affinity, c.jobs, c.quota, c.heldNamespace} {
		contradict()
	}
	beside := c.quickest("beside")
	busy := c.cpu()
	for deadline := time.Now().Add(30 * time.Second); busy > idle+0.1 && time.Now().Before(deadline); { // back-off grows
		busy = c.cpu()
	}
	t.Logf("some work takes %v alone and %v beside contradictions; the server takes %.1f %% of a core at rest, then %.1f %%", alone, beside, idle*100, busy*100)
	if beside > 2*alone+500*time.Millisecond {
		t.Errorf("the work takes %v, not %v", beside, alone)
	}
	if busy > idle+0.1 {
		t.Errorf("the server still takes %.0f %% of a core when all is done, %.0f %% before", busy*100, idle*100)
	}
	c.cyclesEnd()
	if strings.Contains(s.output(), "panicked") || s.hasEnded() {
		t.Error(s.tail())
	}
}

type contradictions struct {
	t      *testing.T
	api    kubernetes.Interface
	server *server
}

func (c contradictions) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c contradictions) await(what string, holds func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("not within a minute: %s\n%s", what, c.server.tail())
		}
	}
}

// quickest returns the shortest of several runs of work: other programs of the machine only make it longer.
func (c contradictions) quickest(name string) time.Duration {
	c.t.Helper()
	var took []time.Duration
	for i := range 5 {
		took = append(took, c.work(fmt.Sprint(name, "-", i)))
	}
	return slices.Min(took)
}

// work creates a namespace with a Deployment and a Job, deletes it, and returns how long that took.
func (c contradictions) work(namespace string) time.Duration {
	c.t.Helper()
	ctx, began := c.t.Context(), time.Now()
	_, err := c.api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	c.must(err)
	d := deployment(webApp, anyhow, seeded(1))
	replicas := int32(20)
	d.Spec.Replicas, d.Spec.Template.Annotations = &replicas, nil
	d.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
	_, err = c.api.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{})
	c.must(err)
	j := job(seeded(1))
	many := int32(5)
	j.Spec.Completions, j.Spec.Parallelism, j.Spec.Template.Annotations = &many, &many, map[string]string{"hollow.skiff/runs-for": "10ms"}
	_, err = c.api.BatchV1().Jobs(namespace).Create(ctx, j, metav1.CreateOptions{})
	c.must(err)
	c.await("a rollout in "+namespace, func() bool {
		d, err := c.api.AppsV1().Deployments(namespace).Get(ctx, webApp, metav1.GetOptions{})
		c.must(err)
		return d.Status.AvailableReplicas == replicas
	})
	c.await("a Job in "+namespace, func() bool {
		j, err := c.api.BatchV1().Jobs(namespace).Get(ctx, "job", metav1.GetOptions{})
		c.must(err)
		return j.Status.Succeeded == many
	})
	c.must(c.api.AppsV1().Deployments(namespace).Delete(ctx, webApp, metav1.DeleteOptions{}))
	c.must(c.api.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
	c.await("the end of "+namespace, func() bool {
		_, err := c.api.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	return time.Since(began)
}

// cpu returns the CPU usage of the server in cores.
func (c contradictions) cpu() float64 {
	c.t.Helper()
	const over = time.Second
	before, err := cpuTime(c.server.cmd.Process.Pid)
	c.must(err)
	time.Sleep(over)
	after, err := cpuTime(c.server.cmd.Process.Pid)
	c.must(err)
	return (after - before).Seconds() / over.Seconds()
}

// cpuTime returns the CPU time of a process.
func cpuTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(data), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0, errors.New("too few fields: " + string(data))
	}
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	const tick = time.Second / 100
	return time.Duration(user+system) * tick, errors.Join(err, err2)
}

const place = "default"

// configMap creates a ConfigMap with owners.
func (c contradictions) configMap(name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	c.t.Helper()
	m, err := c.api.CoreV1().ConfigMaps(place).Create(c.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{})
	c.must(err)
	return m
}

func owner(m *corev1.ConfigMap) metav1.OwnerReference {
	block := true
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: m.Name, UID: m.UID, BlockOwnerDeletion: &block}
}

const cycles, cycleLength = 20, 3

// cyclicOwners creates objects that own one another in a cycle, or themselves, and deletes an object of some of the cycles.
func (c contradictions) cyclicOwners() {
	c.t.Helper()
	foreground := metav1.DeletePropagationForeground
	maps := c.api.CoreV1().ConfigMaps(place)
	for i := range cycles {
		var ring []*corev1.ConfigMap
		for n := range cycleLength {
			var owners []metav1.OwnerReference
			if n > 0 {
				owners = append(owners, owner(ring[n-1]))
			}
			ring = append(ring, c.configMap(fmt.Sprintf("ring-%d-%d", i, n), owners...))
		}
		ring[0].OwnerReferences = []metav1.OwnerReference{owner(ring[cycleLength-1])}
		_, err := maps.Update(c.t.Context(), ring[0], metav1.UpdateOptions{})
		c.must(err)
		self := c.configMap(fmt.Sprint("self-", i))
		self.OwnerReferences = []metav1.OwnerReference{owner(self)}
		_, err = maps.Update(c.t.Context(), self, metav1.UpdateOptions{})
		c.must(err)
		if i%2 == 0 {
			c.must(maps.Delete(c.t.Context(), ring[1].Name, metav1.DeleteOptions{PropagationPolicy: &foreground}))
			c.must(maps.Delete(c.t.Context(), self.Name, metav1.DeleteOptions{PropagationPolicy: &foreground}))
		}
	}
}

// cyclesEnd checks that all objects of a deleted cycle are removed, and that other cycles stay.
func (c contradictions) cyclesEnd() {
	c.t.Helper()
	there := func(name string) bool {
		_, err := c.api.CoreV1().ConfigMaps(place).Get(c.t.Context(), name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			c.t.Fatal(err)
		}
		return err == nil
	}
	for i := range cycles {
		names := []string{fmt.Sprint("self-", i)}
		for n := range cycleLength {
			names = append(names, fmt.Sprintf("ring-%d-%d", i, n))
		}
		for _, name := range names {
			if i%2 == 0 {
				c.await("the end of "+name, func() bool { return !there(name) })
			} else if !there(name) {
				c.t.Errorf("%s is gone though nobody deleted it or one of its owners", name)
			}
		}
	}
}

// owners creates objects whose owners cannot be looked up or are in another namespace.
func (c contradictions) owners() {
	c.t.Helper()
	for i := range 20 {
		c.configMap(fmt.Sprint("strange-", i), metav1.OwnerReference{APIVersion: "nowhere.example/v1", Kind: "Nothing", Name: "n", UID: "1"})
		c.configMap(fmt.Sprint("stranger-", i), metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "hollow-0", UID: "not-its-uid"}, metav1.OwnerReference{APIVersion: "nowhere.example/v1", Kind: "Nothing", Name: "n", UID: "1"})
	}
}

// selectors creates workloads whose selectors all match the same pods.
func (c contradictions) selectors() {
	c.t.Helper()
	ctx := c.t.Context()
	template := pod("claimed", 1)
	template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	selector := &metav1.LabelSelector{MatchLabels: template.Labels}
	three := int32(3)
	for i := range 3 {
		_, err := c.api.CoreV1().Pods(place).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("claimed-", i), Labels: template.Labels}, Spec: template.Spec}, metav1.CreateOptions{})
		c.must(err)
	}
	for i := range 4 {
		meta := metav1.ObjectMeta{Name: fmt.Sprint("claims-", i)}
		_, err := c.api.AppsV1().ReplicaSets(place).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &three, Selector: selector, Template: template}}, metav1.CreateOptions{})
		c.must(err)
		_, err = c.api.CoreV1().ReplicationControllers(place).Create(ctx, &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Replicas: &three, Selector: template.Labels, Template: &template}}, metav1.CreateOptions{})
		c.must(err)
		_, err = c.api.AppsV1().Deployments(place).Create(ctx, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &three, Selector: selector, Template: template}}, metav1.CreateOptions{})
		c.must(err)
		_, err = c.api.AppsV1().DaemonSets(place).Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, metav1.CreateOptions{})
		c.must(err)
		_, err = c.api.CoreV1().Services(place).Create(ctx, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Selector: template.Labels, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
		c.must(err)
	}
}

// affinity creates pods with very many affinity terms, most of which contradict others.
func (c contradictions) affinity() {
	c.t.Helper()
	const terms, values = 60, 30
	var many []string
	for i := range values {
		many = append(many, fmt.Sprint("value-", i))
	}
	var near, far []corev1.PodAffinityTerm
	var preferred []corev1.WeightedPodAffinityTerm
	var nodes []corev1.NodeSelectorTerm
	for i := range terms {
		selector := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: many}, {Key: fmt.Sprint("key-", i), Operator: metav1.LabelSelectorOpIn, Values: many}}}
		near = append(near, corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "huge"}}, TopologyKey: corev1.LabelHostname})
		far = append(far, corev1.PodAffinityTerm{LabelSelector: selector, TopologyKey: corev1.LabelHostname, NamespaceSelector: &metav1.LabelSelector{}})
		preferred = append(preferred, corev1.WeightedPodAffinityTerm{Weight: 1 + int32(i%100), PodAffinityTerm: far[i]})
		nodes = append(nodes, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: fmt.Sprint("key-", i), Operator: corev1.NodeSelectorOpNotIn, Values: many}}})
	}
	far = append(far, near[0]) // near itself and far from itself
	for i := range 20 {
		p := pod("huge", 1)
		p.Labels[fmt.Sprint("key-", i%terms)] = "value-1"
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: nodes}},
			PodAffinity:     &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: near, PreferredDuringSchedulingIgnoredDuringExecution: preferred},
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: far, PreferredDuringSchedulingIgnoredDuringExecution: preferred}}
		_, err := c.api.CoreV1().Pods(place).Create(c.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("huge-", i), Labels: p.Labels}, Spec: p.Spec}, metav1.CreateOptions{})
		c.must(err)
	}
}

// jobs creates Jobs that select the pods of one another and of other workloads.
func (c contradictions) jobs() {
	c.t.Helper()
	yes := true
	for i := range 5 {
		j := job(seeded(1))
		j.Name = fmt.Sprint("clash-", i)
		j.Spec.Template.Annotations = nil
		j.Spec.ManualSelector, j.Spec.CompletionMode = &yes, nil
		j.Spec.Template.Labels = map[string]string{"app": "claimed", "clash": "yes"}
		j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "claimed"}}
		_, err := c.api.BatchV1().Jobs(place).Create(c.t.Context(), j, metav1.CreateOptions{})
		c.must(err)
	}
	first, err := c.api.BatchV1().Jobs(place).Create(c.t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "clashes"}, Spec: batchv1.JobSpec{Template: job(seeded(1)).Spec.Template}}, metav1.CreateOptions{})
	c.must(err)
	second := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "clashes-too"}, Spec: batchv1.JobSpec{ManualSelector: &yes, Selector: first.Spec.Selector, Template: *first.Spec.Template.DeepCopy()}}
	_, err = c.api.BatchV1().Jobs(place).Create(c.t.Context(), second, metav1.CreateOptions{})
	c.must(err)
}

// quota creates a Deployment whose pods a quota never allows.
func (c contradictions) quota() {
	c.t.Helper()
	ctx := c.t.Context()
	const namespace = "nothing-allowed"
	_, err := c.api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.api.CoreV1().ResourceQuotas(namespace).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}}}, metav1.CreateOptions{})
	c.must(err)
	for i := range 10 {
		d := deployment(fmt.Sprint("never-", i), anyhow, seeded(1))
		many := int32(500)
		d.Spec.Replicas = &many
		_, err = c.api.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{})
		c.must(err)
	}
}

// heldNamespace deletes a namespace whose content has a finalizer that nobody removes.
func (c contradictions) heldNamespace() {
	c.t.Helper()
	ctx := c.t.Context()
	for i := range 5 {
		namespace := fmt.Sprint("held-", i)
		_, err := c.api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		c.must(err)
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{finalizer}}}
		_, err = c.api.CoreV1().ConfigMaps(namespace).Create(ctx, m, metav1.CreateOptions{})
		c.must(err)
		c.must(c.api.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}))
		_, err = c.api.CoreV1().ConfigMaps(namespace).Patch(ctx, "held", types.MergePatchType, []byte(`{"data":{"still":"here"}}`), metav1.PatchOptions{})
		c.must(err)
	}
}
