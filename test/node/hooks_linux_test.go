package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func script(text string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", text}}}
}

func ranEver(h *history, name string) bool {
	return h.has(func(p *corev1.Pod) bool { c := container(p, name); return c.State.Running != nil || c.Ready })
}

// A container whose postStart hook fails is killed, and its status never says Running.
func postStartFails(s *testNamespace) {
	c := sh("main", "while true; do sleep 1; done")
	c.Lifecycle = &corev1.Lifecycle{PostStart: script("echo is wrong; exit 7")}
	p := newPod("fails", c)
	h := s.follow("fails")
	s.create(p)
	p = s.awaitEnd("fails")
	if p.Status.Phase != corev1.PodFailed {
		s.Errorf("the pod is %s", p.Status.Phase)
	}
	if ranEver(h, "main") {
		s.Error("the container was seen running")
	}
	s.awaitEvent("fails", "FailedPostStartHook: ", "PostStartHook failed")
	// It is tried again where the pod's policy says so.
	q := newPod("again", c)
	q.Spec.RestartPolicy = corev1.RestartPolicyAlways
	h = s.follow("again")
	s.create(q)
	s.wait("again", "to wait before it is tried again", func(p *corev1.Pod) bool {
		c := container(p, "main")
		return c.RestartCount > 0 && slices.Contains([]string{"CrashLoopBackOff", "PostStartHookError"}, waiting(p, "main"))
	})
	if ranEver(h, "main") {
		s.Error("the container was seen running")
	}
}

// A container whose postStart hook does not return stays in ContainerCreating, and its pod can be deleted.
func postStartHangs(s *testNamespace) {
	c := sh("main", forever)
	c.Lifecycle = &corev1.Lifecycle{PostStart: script("touch /shared/begun; sleep 1000")}
	p := newPod("hangs", c, sh("other", forever))
	dir := s.mounted(p)
	h := s.follow("hangs")
	s.create(p)
	s.await("the hook to begin", func() bool { m, _ := filepath.Glob(filepath.Join(dir, "begun")); return len(m) == 1 })
	time.Sleep(2 * time.Second) // nothing is to happen: there is nothing to wait for
	if p = s.get("hangs"); p.Status.Phase != corev1.PodPending || waiting(p, "main") != "ContainerCreating" || ranEver(h, "main") {
		s.Errorf("the pod is %s:\n%s", p.Status.Phase, s.describe(p))
	}
	if ranEver(h, "other") {
		s.Error("the next container was started")
	}
	if took := s.delete("hangs"); took > 15*time.Second {
		s.Errorf("deleting it took %v", took)
	}
}

// preStop comes before TERM, and both while the pod can be seen terminating.
func hooks(s *testNamespace) {
	c := sh("main", "trap 'echo term >> /shared/order; sleep 0.2; echo end >> /shared/order; exit 0' TERM; sleep 1000 & wait")
	c.Lifecycle = &corev1.Lifecycle{PostStart: script("echo poststart >> /shared/order"), PreStop: script("echo prestop >> /shared/order; sleep 1; echo prestopped >> /shared/order")}
	web := testserver("web")
	web.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/hostname", Port: intstr.FromInt32(8080)}}}
	slow := sh("slow", forever)
	slow.Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}, PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}
	p := newPod("hooks", c, web, slow)
	p.Spec.TerminationGracePeriodSeconds = new(int64(20))
	dir := s.mounted(p)
	h := s.follow("hooks")
	s.create(p)
	s.running("hooks")
	took := s.delete("hooks")
	if got, want := lines(s.read(filepath.Join(dir, "order"))), []string{"poststart", "prestop", "prestopped", "term", "end"}; !slices.Equal(got, want) {
		s.Errorf("the order is %q, want %q", got, want)
	}
	if took < time.Second || took > 10*time.Second {
		s.Errorf("it took %v", took)
	}
	last := h.all()[len(h.all())-1]
	if last.DeletionTimestamp == nil || last.Status.Phase != corev1.PodSucceeded || container(last, "main").State.Terminated == nil {
		s.Errorf("when it went, the pod was %s: %+v", last.Status.Phase, container(last, "main").State)
	}
	s.awaitEvent("hooks", "Killing: Stopping container main")
	s.awaitEvent("hooks", "Killing: Stopping container web")
}

// A container that ignores SIGTERM is killed after the grace period, not before and not much later.
func grace(s *testNamespace) {
	stubborn := "trap 'echo term >> /shared/order' TERM; touch /shared/up; while true; do sleep 1; done"
	p := newPod("stubborn", sh("main", stubborn))
	p.Spec.TerminationGracePeriodSeconds = new(int64(3))
	dir := s.mounted(p)
	h := s.follow("stubborn")
	s.create(p)
	q := newPod("quick", sh("main", stubborn))
	q.Spec.TerminationGracePeriodSeconds = new(int64(300))
	other := s.mounted(q)
	s.create(q)
	for name, in := range map[string]string{"stubborn": dir, "quick": other} {
		s.running(name)
		s.await(name+" to listen to signals", func() bool { // a container runs a moment before its program does
			_, err := os.Stat(filepath.Join(in, "up"))
			return err == nil
		})
	}
	if took := s.delete("stubborn"); took < 3*time.Second || took > 8*time.Second {
		s.Errorf("with 3 s of grace it took %v", took)
	}
	if got := s.read(filepath.Join(dir, "order")); got != "term\n" {
		s.Errorf("it was asked %q", got)
	}
	last := h.all()[len(h.all())-1]
	if end := container(last, "main").State.Terminated; end == nil || end.ExitCode != 137 || last.Status.Phase != corev1.PodFailed {
		s.Errorf("when it went, the pod was %s: %+v", last.Status.Phase, end)
	}
	// A deletion may shorten the grace period, also while the pod is being deleted.
	remove := func(seconds int64) {
		if err := s.api.CoreV1().Pods(s.name).Delete(s.Context(), "quick", metav1.DeleteOptions{GracePeriodSeconds: &seconds}); err != nil {
			s.Fatal(err)
		}
	}
	remove(200)
	s.wait("quick", "to be deleted with 200 s of grace", func(p *corev1.Pod) bool {
		return p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 200
	})
	began := time.Now()
	remove(1)
	s.await("pod quick to be gone", func() bool {
		_, err := s.api.CoreV1().Pods(s.name).Get(s.Context(), "quick", metav1.GetOptions{})
		return err != nil && strings.Contains(err.Error(), "not found")
	})
	if took := time.Since(began); took > 8*time.Second {
		s.Errorf("with 1 s of grace it took %v", took)
	}
}

// The time of the preStop hook is part of the grace period, but the container gets at least 2 s.
func preStopWithinGrace(s *testNamespace) {
	for name, c := range map[string]struct {
		hook string
		want time.Duration
	}{"counts": {"sleep 3", 5 * time.Second}, "exceeds": {"sleep 1000", 7 * time.Second}} {
		main := sh("main", "trap '' TERM; while true; do sleep 1; done")
		main.Lifecycle = &corev1.Lifecycle{PreStop: script(c.hook)}
		p := newPod(name, main)
		p.Spec.TerminationGracePeriodSeconds = new(int64(5))
		s.create(p)
		s.running(name)
		if took := s.delete(name); took < c.want-500*time.Millisecond || took > c.want+10*time.Second {
			s.Errorf("%s: it took %v, want %v", name, took, c.want)
		}
	}
	s.awaitEvent("exceeds", "FailedPreStopHook: ")
}
