package scheduling_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	schedv1 "k8s.io/kube-scheduler/config/v1"

	"skiff/internal/scheduling"
)

// cluster returns nodes in ten zones, each with pods of app=other.
func cluster(nodes, podsEach int, workloads scheduling.Workloads) *scheduling.Snapshot {
	var list []*scheduling.Node
	for i := range nodes {
		name := fmt.Sprintf("node-%04d", i)
		n := scheduling.NewNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprint("z", i%10)}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"),
				corev1.ResourcePods: resource.MustParse("110")}}})
		for j := range podsEach {
			n = n.With(plain(fmt.Sprintf("%s-%d", name, j), "other"))
		}
		list = append(list, n)
	}
	return scheduling.NewSnapshot(workloads).Update(list, nil)
}

func plain(name, app string, change ...func(*corev1.Pod)) *scheduling.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "pause", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi")}}}},
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}}}
	for _, c := range change {
		c(p)
	}
	return scheduling.NewPod(p)
}

// place decides for one pod, checking every node, and returns the snapshot with it placed.
func place(p *scheduling.Profile, s *scheduling.Snapshot, pod *scheduling.Pod, w *workspace) *scheduling.Snapshot {
	w.checks = w.checks[:0]
	for _, plugin := range p.Filters {
		prepared := plugin.PreFilter(pod, s)
		if prepared.Status != nil {
			return s
		}
		if prepared.Check != nil {
			w.checks = append(w.checks, prepared.Check)
		}
	}
	w.feasible = w.feasible[:0]
next:
	for _, n := range s.Nodes() {
		for _, c := range w.checks {
			if c.Filter(n) != nil {
				continue next
			}
		}
		w.feasible = append(w.feasible, n)
	}
	if len(w.feasible) == 0 {
		return s
	}
	w.total = append(w.total[:0], make([]int64, len(w.feasible))...)
	w.scores = append(w.scores[:0], make([]int64, len(w.feasible))...)
	for _, plugin := range p.Scores {
		scorer, _ := plugin.PreScore(pod, s, w.feasible)
		if scorer == nil {
			continue
		}
		scorer.Score(w.feasible, w.scores)
		scorer.Normalize(w.feasible, w.scores)
		for i, score := range w.scores {
			w.total[i] += score * plugin.Weight
		}
	}
	best := 0
	for i := range w.total {
		if w.total[i] > w.total[best] {
			best = i
		}
	}
	return s.Update([]*scheduling.Node{w.feasible[best].With(pod)}, nil)
}

type workspace struct {
	checks        []scheduling.Check
	feasible      []*scheduling.Node
	total, scores []int64
}

type byApp struct{}

func (byApp) DefaultSelector(p *corev1.Pod) labels.Selector {
	return labels.SelectorFromSet(labels.Set{"app": p.Labels["app"]})
}

func antiAffinity(key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}}}}}}
	}
}

func spreadOver(key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}}}}
	}
}

// BenchmarkPlace decides for one pod after the other and places it, checking every node: nothing is reused between pods of the same signature.
func BenchmarkPlace(b *testing.B) {
	profile, err := scheduling.NewProfile(schedv1.KubeSchedulerProfile{})
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		nodes     int
		workloads scheduling.Workloads
		change    []func(*corev1.Pod)
	}{
		{"plain pod", 1000, nil, nil},
		{"plain pod", 5000, nil, nil},
		{"pod of a Deployment", 1000, byApp{}, nil},
		{"pod of a Deployment", 5000, byApp{}, nil},
		{"hard spread over zones", 1000, nil, []func(*corev1.Pod){spreadOver(corev1.LabelTopologyZone)}},
		{"hard spread over hosts", 1000, nil, []func(*corev1.Pod){spreadOver(corev1.LabelHostname)}},
		{"anti-affinity by host", 1000, nil, []func(*corev1.Pod){antiAffinity(corev1.LabelHostname)}},
		{"anti-affinity by host", 5000, nil, []func(*corev1.Pod){antiAffinity(corev1.LabelHostname)}},
	} {
		b.Run(fmt.Sprintf("%s/%d nodes", c.name, c.nodes), func(b *testing.B) {
			s := cluster(c.nodes, 10, c.workloads)
			pods := make([]*scheduling.Pod, c.nodes)
			for i := range pods {
				pods[i] = plain(fmt.Sprint("new-", i), fmt.Sprint("web-", i%20), c.change...)
			}
			w, now := &workspace{}, s
			for _, pod := range pods[:20] {
				place(profile, s, pod, w) // counts what later calls only update
			}
			b.ReportAllocs()
			began := cpuTime()
			for i := 0; b.Loop(); i++ {
				if i%len(pods) == 0 {
					now = s
				}
				now = place(profile, now, pods[i%len(pods)], w)
			}
			b.ReportMetric(float64(cpuTime()-began)/float64(b.N), "cpu-ns/op") // machines are shared
		})
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkNewPod(b *testing.B) {
	pod := plain("a", "web").Pod
	b.ReportAllocs()
	for b.Loop() {
		scheduling.NewPod(pod)
	}
}

func BenchmarkAlike(b *testing.B) {
	s, pod := scheduling.NewSnapshot(nil), plain("a", "web")
	b.ReportAllocs()
	for b.Loop() {
		s.Signature(pod)
	}
}
