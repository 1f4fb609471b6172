package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
)

// node runs a pod "p" whose containers answer probes as the test says, with a clock of the test.
type node struct {
	t      *testing.T
	m      *Manager
	pod    *corev1.Pod
	status corev1.PodStatus
	events *record.FakeRecorder
	begun  time.Time

	mu      sync.Mutex
	answers map[string]error // of commands: nil exits with 0, errExit with 1
	asked   []string
	changed []string
}

var errExit = errors.New("exit 1")

func newNode(t *testing.T, containers ...corev1.Container) *node {
	n := &node{t: t, events: record.NewFakeRecorder(1000), begun: time.Now(), answers: map[string]error{}}
	n.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "u"}, Spec: corev1.PodSpec{Containers: containers}}
	n.status.PodIP = "10.0.0.1"
	n.m = n.manager()
	t.Cleanup(func() { n.m.Close() })
	return n
}

func (n *node) manager() *Manager {
	return New(Options{Recorder: n.events, Exec: n.exec, Report: func(u Update) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.changed = append(n.changed, fmt.Sprintf("%s %s %s %t", n.now(), u.ContainerID, u.Kind, u.OK))
	}})
}

func (n *node) now() time.Duration { return time.Since(n.begun) }

func (n *node) exec(ctx context.Context, id string, command []string, timeout time.Duration) (int, []byte, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, fmt.Sprintf("%s %s %s", n.now(), id, command[0]))
	switch err := n.answers[command[0]]; err {
	case nil:
		return 0, []byte("fine"), nil
	case errExit:
		return 1, []byte("bad"), nil
	default:
		return 0, nil, err
	}
}

func (n *node) answer(command string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answers[command] = err
}

// run starts a container, under a new id if it ran before.
func (n *node) run(name, id string) {
	n.status.ContainerStatuses = slices.DeleteFunc(n.status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	n.status.ContainerStatuses = append(n.status.ContainerStatuses, corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + id,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}})
	n.follow()
}

func (n *node) follow() { n.m.Follow(n.pod, &n.status) }

// forget drops what was asked and told so far.
func (n *node) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked, n.changed = nil, nil
}

// wait lets time pass.
func (n *node) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (n *node) wantState(name string, started, ready bool) {
	n.t.Helper()
	n.follow()
	s := find(n.status.ContainerStatuses, name)
	if *s.Started != started || s.Ready != ready {
		n.t.Errorf("after %s: %s started=%t ready=%t, want %t %t", n.now(), name, *s.Started, s.Ready, started, ready)
	}
}

func (n *node) wantAsked(want ...string) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.asked, want) {
		n.t.Errorf("after %s: asked\n%s\nwant\n%s", n.now(), strings.Join(n.asked, "\n"), strings.Join(want, "\n"))
	}
	n.asked = nil
}

func (n *node) wantNews(want ...string) {
	n.t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.changed, want) {
		n.t.Errorf("after %s: told %q, want %q", n.now(), n.changed, want)
	}
	n.changed = nil
}

func (n *node) wantEvents(want ...string) {
	n.t.Helper()
	var got []string
	for len(n.events.Events) > 0 {
		got = append(got, <-n.events.Events)
	}
	if !slices.Equal(got, want) {
		n.t.Errorf("after %s: events %q, want %q", n.now(), got, want)
	}
}

// series counts those of a metric.
func (n *node) series(name string) int {
	n.t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(n.m)
	families, err := registry.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return len(f.GetMetric())
		}
	}
	return 0
}

func command(name string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{name}}}, PeriodSeconds: period, FailureThreshold: failures,
		SuccessThreshold: 1, TimeoutSeconds: 1}
}

func TestWithoutProbesRunningIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, corev1.Container{Name: "c"})
		n.status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}}
		n.wantState("c", false, false)
		n.run("c", "1")
		n.wantState("c", true, true)
	})
}

func TestReadinessComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, corev1.Container{Name: "c", ReadinessProbe: command("ready", 10, 2)})
		n.answer("ready", errExit)
		n.run("c", "1")
		n.wait(500 * time.Millisecond)
		n.wantState("c", true, false)
		n.answer("ready", nil)
		n.wait(time.Second)
		n.wantState("c", true, true)
		n.wantNews("1s containerd://1 Readiness true")
		n.wantAsked("0s 1 ready", "1s 1 ready")
		n.wantEvents() // early questions only count if the answer is good

		n.answer("ready", errExit)
		n.wait(10 * time.Second) // 11.5s: one failure
		n.wantState("c", true, true)
		n.wait(10 * time.Second)
		n.wantState("c", true, false)
		n.wantNews("20s containerd://1 Readiness false")
		n.wantEvents("Warning Unhealthy Readiness probe failed: bad", "Warning Unhealthy Readiness probe failed: bad")
		n.answer("ready", nil)
		n.wait(10 * time.Second)
		n.wantState("c", true, true)
		if n.m.Failed("u", "containerd://1") != nil {
			t.Error("nobody is killed for not being ready")
		}
		if got := n.series("prober_probe_total"); got != 2 {
			t.Errorf("%d series of metrics, want one of successes and one of failures", got)
		}
		n.m.Forget("u")
		if got := n.series("prober_probe_total") + n.series("prober_probe_duration_seconds"); got != 0 {
			t.Errorf("%d series of metrics are left of a forgotten pod", got)
		}
	})
}

func TestStartupGatesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, corev1.Container{Name: "c", StartupProbe: command("started", 2, 10), LivenessProbe: command("live", 5, 1), ReadinessProbe: command("ready", 7, 1)})
		n.answer("started", errExit)
		n.answer("live", errExit)
		n.run("c", "1")
		n.wait(5 * time.Second)
		n.wantAsked("0s 1 started", "1s 1 started", "2s 1 started", "4s 1 started")
		n.wantState("c", false, false)
		n.answer("started", nil)
		n.wait(time.Second) // until 6s
		n.wantState("c", true, true)
		n.wantNews("6s containerd://1 Startup true", "6s containerd://1 Readiness true")
		n.wait(5 * time.Second)
		n.wantAsked("6s 1 started", "6s 1 ready", "11s 1 live")
		n.wantNews("11s containerd://1 Liveness false")
	})
}

func TestStartupFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, corev1.Container{Name: "c", StartupProbe: command("started", 10, 3)})
		n.answer("started", errExit)
		n.run("c", "1")
		n.wait(30*time.Second - time.Millisecond) // failureThreshold periods
		if f := n.m.Failed("u", "containerd://1"); f != nil {
			t.Errorf("failed after %s: %+v", n.now(), f)
		}
		n.wait(time.Millisecond)
		if f := n.m.Failed("u", "containerd://1"); f == nil || f.Message != "Container c failed startup probe" || f.Kind != Startup {
			t.Errorf("after %s: %+v", n.now(), f)
		}
		n.wantNews("30s containerd://1 Startup false")
	})
}

func TestLivenessFailureIsForgottenWithTheContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := command("live", 5, 2)
		p.TerminationGracePeriodSeconds = ptr.To[int64](7)
		n := newNode(t, corev1.Container{Name: "c", LivenessProbe: p})
		n.answer("live", errExit)
		n.run("c", "1")
		n.wait(9 * time.Second)
		if f := n.m.Failed("u", "containerd://1"); f != nil {
			t.Errorf("one failure is enough: %+v", f)
		}
		n.wait(time.Second)
		f := n.m.Failed("u", "containerd://1")
		if f == nil || f.Message != "Container c failed liveness probe" || *f.GracePeriodSeconds != 7 {
			t.Errorf("after %s: %+v", n.now(), f)
		}
		n.wantEvents("Warning Unhealthy Liveness probe failed: bad", "Warning Unhealthy Liveness probe failed: bad")
		n.wait(time.Minute)
		n.wantAsked("5s 1 live", "10s 1 live") // and no more
		n.answer("live", nil)
		n.run("c", "2")
		if f := n.m.Failed("u", "containerd://2"); f != nil {
			t.Errorf("a new container has a past: %+v", f)
		}
		n.wait(5 * time.Second)
		n.wantAsked("1m15s 2 live")
		n.wantNews("10s containerd://1 Liveness false")
	})
}

func TestInitialDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := command("ready", 10, 3)
		p.InitialDelaySeconds = 30
		n := newNode(t, corev1.Container{Name: "c", ReadinessProbe: p})
		n.run("c", "1")
		n.wait(30*time.Second - time.Millisecond)
		n.wantState("c", true, false)
		n.wait(time.Millisecond)
		n.wantState("c", true, true)
		n.wantAsked("30s 1 ready")
	})
}

func TestWhatCannotBeAskedProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, corev1.Container{Name: "c", LivenessProbe: command("live", 1, 1)})
		n.answer("live", errors.New("runtime is away"))
		n.run("c", "1")
		n.wait(time.Second)
		n.wantAsked("1s 1 live", "1s 1 live", "1s 1 live")
		n.wantEvents("Warning Unhealthy Liveness probe errored and resulted in unknown state: runtime is away")
		if f := n.m.Failed("u", "containerd://1"); f != nil {
			t.Errorf("failed: %+v", f)
		}
		n.answer("live", context.DeadlineExceeded)
		n.wait(time.Second)
		n.wantEvents(`Warning Unhealthy Liveness probe failed: command timed out: "live" timed out after 1s`)
		if f := n.m.Failed("u", "containerd://1"); f == nil {
			t.Error("a command that does not end in time has failed")
		}
	})
}

func TestStoppedContainersAreNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, corev1.Container{Name: "c", ReadinessProbe: command("ready", 1, 1)})
		n.run("c", "1")
		n.wait(1500 * time.Millisecond)
		n.wantState("c", true, true)
		n.forget()
		n.status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		n.wantState("c", false, false)
		n.wait(time.Minute)
		n.wantAsked()
		n.run("c", "2")
		n.wait(0)
		n.wantState("c", true, true)
		n.wantAsked("1m1.5s 2 ready")
		n.m.Forget("u")
		n.wait(time.Minute)
		n.wantAsked()
	})
}

func TestDyingPodsAreAskedOnlyWhetherTheyAreReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, corev1.Container{Name: "c", LivenessProbe: command("live", 1, 1), ReadinessProbe: command("ready", 1, 1)})
		n.run("c", "1")
		n.wait(1500 * time.Millisecond)
		n.pod = n.pod.DeepCopy()
		n.pod.DeletionTimestamp = ptr.To(metav1.Now())
		n.follow()
		n.answer("live", errExit)
		n.answer("ready", errExit)
		n.forget()
		n.wait(time.Second)
		n.wantAsked("2s 1 ready")
		n.wantState("c", true, false)
		if n.m.Failed("u", "containerd://1") != nil {
			t.Error("a dying container is killed for being dead")
		}
	})
}

func TestTerminating(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, corev1.Container{Name: "c", StartupProbe: command("started", 1, 1), ReadinessProbe: command("ready", 1, 1)})
		n.answer("started", errExit)
		n.run("c", "1")
		n.wait(500 * time.Millisecond)
		n.m.Terminating("u")
		n.forget()
		n.wait(0)
		n.wantAsked("500ms 1 ready")
	})
}

// After a restart of the kubelet what was ready stays ready, and is asked at some time within a period.
func TestRestartOfTheKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, corev1.Container{Name: "c", StartupProbe: command("started", 10, 1), ReadinessProbe: command("ready", 10, 1)},
			corev1.Container{Name: "unready", ReadinessProbe: command("unready", 10, 1)})
		n.answer("unready", errExit)
		n.run("c", "1")
		n.run("unready", "2")
		n.wait(time.Hour)
		n.wantState("c", true, true)
		n.wantState("unready", true, false)
		n.m.Close()
		n.pod.Status = *n.status.DeepCopy()
		n.m = n.manager()
		n.forget()
		n.answer("ready", errExit)
		n.wantState("c", true, true)
		n.wantState("unready", true, false)
		n.wait(10 * time.Second)
		n.wantState("c", true, false)
		if len(n.asked) != 2 || len(n.changed) != 1 || !strings.Contains(n.changed[0], "containerd://1 Readiness false") {
			t.Errorf("asked %q, told %q", n.asked, n.changed)
		}
	})
}

func TestInitContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.pod.Spec.InitContainers = []corev1.Container{{Name: "once"}, {Name: "sidecar", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
			StartupProbe: command("started", 10, 3), LivenessProbe: command("live", 1, 1)}}
		n.status.InitContainerStatuses = []corev1.ContainerStatus{
			{Name: "once", ContainerID: "containerd://1", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}},
			{Name: "sidecar", ContainerID: "containerd://2", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}},
		}
		n.answer("live", errExit)
		n.follow()
		if s := n.status.InitContainerStatuses; *s[0].Started || !s[0].Ready || *s[1].Started || s[1].Ready {
			t.Errorf("before: %+v", s)
		}
		n.wait(time.Second)
		n.follow()
		if s := n.status.InitContainerStatuses[1]; !*s.Started || !s.Ready {
			t.Errorf("after: %+v", s)
		}
		if f := n.m.Failed("u", "containerd://2"); f == nil || f.Message != "Container sidecar failed liveness probe" {
			t.Errorf("failed: %+v", f)
		}
	})
}

func TestFinishedPodsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, corev1.Container{Name: "c", ReadinessProbe: command("ready", 1, 1)})
		n.run("c", "1")
		n.wait(time.Millisecond)
		n.status.Phase = corev1.PodFailed
		n.follow()
		n.forget()
		n.wait(time.Minute)
		n.wantAsked()
		if len(n.m.pods) != 0 {
			t.Errorf("left: %v", n.m.pods)
		}
	})
}
