package hollow

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/node/nodelifecycle"
	"skiff/internal/controller/node/tainteviction"
	"skiff/test/seed"
)

// A node becomes unreachable: it is detected in time, its pods are not ready, and evicted when they no longer tolerate it. It comes back: deleted pods
// terminate, and the rest is as before.
func TestSilence(t *testing.T) {
	s := apitest.Start(t)
	const grace = 1500 * time.Millisecond
	controllertest.Run(t, s, tainteviction.New, func(d controller.Deps) controller.Loop {
		d.Config = controller.Config{NodeMonitorPeriod: 0.05, NodeMonitorGracePeriod: controller.Seconds(grace.Seconds()), NodeEvictionRate: 1000}
		return nodelifecycle.New(d)
	})
	nodes, _ := run(t, s.InProcess, Options{Count: 3, Lease: time.Second})
	waitRegistered(t, nodes)
	tolerate := func(seconds int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeNotReady} {
				p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
			}
		}
	}
	create(t, s, podOn("hollow-0", "leaves-soon", tolerate(1)), podOn("hollow-0", "stays", tolerate(300)), podOn("hollow-1", "elsewhere", tolerate(1)))
	expect(t, s, map[string]string{"leaves-soon": "Running ready", "stays": "Running ready", "elsewhere": "Running ready"})
	nodes.Stop("hollow-0")
	began := time.Now()
	expect(t, s, map[string]string{"leaves-soon": "Running", "stays": "Running", "elsewhere": "Running ready"})
	if took := time.Since(began); took < grace-time.Second || took > 3*grace+2*time.Second {
		t.Errorf("found silent after %v", took)
	}
	going := func(name string) bool {
		pod, err := s.Client().CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
		return err != nil || pod.DeletionTimestamp != nil
	}
	controllertest.Eventually(t, func() string {
		if !going("leaves-soon") {
			return "leaves-soon deleted"
		}
		return ""
	})
	if going("stays") || going("elsewhere") {
		t.Error("others went as well")
	}
	n, err := s.Client().CoreV1().Nodes().Get(t.Context(), "hollow-0", metav1.GetOptions{})
	if err != nil || isReadyNode(n) || len(n.Spec.Taints) != 2 {
		t.Errorf("%+v, %v", n, err)
	}
	nodes.Start("hollow-0")
	expect(t, s, map[string]string{"stays": "Running ready", "elsewhere": "Running ready"})
	controllertest.Eventually(t, func() string {
		n, err := s.Client().CoreV1().Nodes().Get(t.Context(), "hollow-0", metav1.GetOptions{})
		if err != nil || !isReadyNode(n) || len(n.Spec.Taints) != 0 {
			return "hollow-0 ready again, without taints"
		}
		return ""
	})
	if nodes.Stop("no-such") || nodes.Start("no-such") {
		t.Error("there is no such node")
	}
}

// The nodes are restarted at random moments while pods are created and deleted: in the end all that should run runs, was started once, and has an address of
// its own; what should have ended has ended, and what was deleted is gone.
func TestRestarts(t *testing.T) {
	s := apitest.Start(t)
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	want, made := map[string]string{}, 0
	o := Options{Count: 3, RunTime: 100 * time.Millisecond, StopDelay: 20 * time.Millisecond}
	for range 10 {
		_, stop := run(t, s.InProcess, o)
		for range random.IntN(15) {
			made++
			name, ends := fmt.Sprintf("p-%d", made), random.IntN(3) == 0
			create(t, s, podOn(fmt.Sprintf("hollow-%d", random.IntN(3)), name, func(p *corev1.Pod) {
				if ends {
					p.Spec.RestartPolicy = corev1.RestartPolicyNever
				}
				if random.IntN(3) == 0 {
					p.Annotations = map[string]string{annotationReadyAfter: "30ms"}
				}
			}))
			if want[name] = "Running ready"; ends {
				want[name] = "Succeeded"
			}
			for victim := range want {
				if random.IntN(2) == 0 {
					if err := s.Client().CoreV1().Pods("default").Delete(t.Context(), victim, metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
					delete(want, victim)
				}
				break
			}
		}
		stop()
	}
	run(t, s.InProcess, o)
	expect(t, s, want)
	list, err := s.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owners := map[string]string{}
	for _, pod := range list.Items {
		if st := pod.Status.ContainerStatuses[0]; st.RestartCount > 0 {
			t.Errorf("%s was started again: %+v", pod.Name, st)
		}
		if pod.Status.Phase == corev1.PodRunning && owners[pod.Status.PodIP] != "" {
			t.Errorf("%s and %s both have %s", owners[pod.Status.PodIP], pod.Name, pod.Status.PodIP)
		}
		if pod.Status.Phase == corev1.PodRunning {
			owners[pod.Status.PodIP] = pod.Name
		}
	}
}
