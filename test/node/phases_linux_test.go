package node

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func phases(s *testNamespace) {
	good, bad, never := s.follow("good"), s.follow("bad"), s.follow("never")
	s.create(newPod("good", sh("main", "sleep 1")))
	s.create(newPod("bad", sh("main", "sleep 1; exit 3")))
	s.create(newPod("never", corev1.Container{Name: "main", Image: "busybox", ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"/no/such/program"}}))

	p := s.awaitEnd("good")
	if got := s.ended(good); !slices.Equal(got, []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded}) {
		s.Errorf("a pod that ends well goes through %v", got)
	}
	if end := container(p, "main").State.Terminated; end == nil || end.ExitCode != 0 || end.Reason != "Completed" || end.StartedAt.IsZero() || end.FinishedAt.Before(&end.StartedAt) || end.ContainerID == "" {
		s.Errorf("its container: %+v", end)
	}
	if !good.has(func(p *corev1.Pod) bool { return waiting(p, "main") == "ContainerCreating" }) {
		s.Error("its container was never waited for as ContainerCreating")
	}
	p = s.awaitEnd("bad")
	if got := s.ended(bad); !slices.Equal(got, []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodFailed}) {
		s.Errorf("a pod that ends badly goes through %v", got)
	}
	if end := container(p, "main").State.Terminated; end == nil || end.ExitCode != 3 || end.Reason != "Error" {
		s.Errorf("its container: %+v", end)
	}
	p = s.awaitEnd("never")
	if got := s.ended(never); !slices.Equal(got, []corev1.PodPhase{corev1.PodPending, corev1.PodFailed}) {
		s.Errorf("a pod that cannot be started goes through %v", got)
	}
	if end := container(p, "main").State.Terminated; end == nil || end.ExitCode != 128 || end.Reason != "StartError" || !strings.Contains(end.Message, "no such file or directory") {
		s.Errorf("its container: %+v", end)
	}
	s.awaitEvent("never", "Failed: ", "no such file or directory")
	for _, reason := range []string{"Scheduled: ", "Pulled: ", "Created: ", "Started: "} {
		s.awaitEvent("good", reason)
	}
}

func podConditions(s *testNamespace) {
	s.create(newPod("lives", sh("main", forever)))
	p := s.running("lives")
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.PodReadyToStartContainers, corev1.ContainersReady, corev1.PodReady} {
		if c := condition(p, kind); c.Status != corev1.ConditionTrue || c.LastTransitionTime.IsZero() || c.ObservedGeneration != p.Generation {
			s.Errorf("%s: %+v at generation %d", kind, c, p.Generation)
		}
	}
	st := p.Status
	if !strings.HasPrefix(st.PodIP, "10.42.") || len(st.PodIPs) != 1 || st.PodIPs[0].IP != st.PodIP || st.HostIP == "" || len(st.HostIPs) != 1 || st.HostIPs[0].IP != st.HostIP {
		s.Errorf("addresses: %s %v, %s %v", st.PodIP, st.PodIPs, st.HostIP, st.HostIPs)
	}
	if st.StartTime == nil || st.QOSClass != corev1.PodQOSBestEffort || st.ObservedGeneration != p.Generation {
		s.Errorf("start %v, class %s, generation %d of %d", st.StartTime, st.QOSClass, st.ObservedGeneration, p.Generation)
	}
	c := container(p, "main")
	if !c.Ready || c.Started == nil || !*c.Started || c.State.Running == nil || c.State.Running.StartedAt.IsZero() || c.RestartCount != 0 {
		s.Errorf("container: %+v", c)
	}
	if !strings.HasPrefix(c.ContainerID, "containerd://") || !strings.Contains(c.ImageID, "sha256:") || !strings.Contains(c.Image, "busybox") {
		s.Errorf("container %q of image %q %q", c.ContainerID, c.Image, c.ImageID)
	}
	s.create(newPod("ends", sh("main", "true")))
	p = s.awaitEnd("ends")
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		if c := condition(p, kind); c.Status != corev1.ConditionFalse || c.Reason != "PodCompleted" {
			s.Errorf("%s of a pod that ended: %+v", kind, c)
		}
	}
	if c := condition(p, corev1.PodInitialized); c.Status != corev1.ConditionTrue || c.Reason != "PodCompleted" {
		s.Errorf("Initialized of a pod that ended: %+v", c)
	}
	s.wait("ends", "to have no sandbox", func(p *corev1.Pod) bool {
		return condition(p, corev1.PodReadyToStartContainers).Status == corev1.ConditionFalse
	})
}

// A condition that somebody else sets decides whether the pod is ready.
func readinessGates(s *testNamespace) {
	p := newPod("gated", sh("main", forever))
	p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/checked"}}
	s.create(p)
	p = s.wait("gated", "to have ready containers", func(p *corev1.Pod) bool { return condition(p, corev1.ContainersReady).Status == corev1.ConditionTrue })
	if c := condition(p, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "ReadinessGatesNotReady" || !strings.Contains(c.Message, "example.com/checked") {
		s.Errorf("Ready: %+v", c)
	}
	for _, value := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse} {
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"example.com/checked","status":%q,"message":"said so"}]}}`, value)
		if _, err := s.api.CoreV1().Pods(s.name).Patch(s.Context(), "gated", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			s.Fatal(err)
		}
		p = s.wait("gated", "to follow its gate", func(p *corev1.Pod) bool { return condition(p, corev1.PodReady).Status == value })
		if c := condition(p, "example.com/checked"); c.Status != value || c.Message != "said so" {
			s.Errorf("somebody else's condition became %+v", c)
		}
	}
}

func initContainers(s *testNamespace) {
	p := newPod("steps", sh("main", "echo main >> /shared/order; cat /shared/order"))
	p.Spec.InitContainers = []corev1.Container{sh("a", "sleep 1; echo a >> /shared/order"), sh("b", "echo b >> /shared/order")}
	s.mounted(p)
	h := s.follow("steps")
	if got := lines(s.output(p)); !slices.Equal(got, []string{"a", "b", "main"}) {
		s.Errorf("the order is %v", got)
	}
	if !h.has(func(p *corev1.Pod) bool {
		c := condition(p, corev1.PodInitialized)
		return p.Status.Phase == corev1.PodPending && c.Status == corev1.ConditionFalse && c.Reason == "ContainersNotInitialized" &&
			c.Message == "containers with incomplete status: [a b]" && container(p, "a").State.Running != nil &&
			waiting(p, "b") == "PodInitializing" && waiting(p, "main") == "PodInitializing"
	}) {
		s.Error("while a ran, the pod was never Pending with b and main waiting as PodInitializing")
	}
	for _, name := range []string{"a", "b"} {
		if c := container(s.get("steps"), name); c.State.Terminated == nil || c.State.Terminated.Reason != "Completed" || !c.Ready {
			s.Errorf("init container %s: %+v", name, c)
		}
	}
}

func initFails(s *testNamespace) {
	p := newPod("fails", sh("main", "true"))
	p.Spec.InitContainers = []corev1.Container{sh("a", "exit 4"), sh("b", "true")}
	s.create(p)
	p = s.awaitEnd("fails")
	if end := container(p, "a").State.Terminated; p.Status.Phase != corev1.PodFailed || end == nil || end.ExitCode != 4 || waiting(p, "b") != "PodInitializing" || waiting(p, "main") != "PodInitializing" {
		s.Errorf("a pod whose init container fails:\n%s", s.describe(p))
	}
	// It is started again where the pod's policy says so, and the pod goes on when it ends well.
	p = newPod("recovers", sh("main", "echo main"))
	p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	p.Spec.InitContainers = []corev1.Container{sh("a", "[ -e /shared/once ] || { touch /shared/once; exit 1; }")}
	s.mounted(p)
	if got := s.output(p); got != "main\n" {
		s.Errorf("main says %q", got)
	}
	if c := container(s.get("recovers"), "a"); c.RestartCount != 1 {
		s.Errorf("init container: %+v", c)
	}
}

// Sidecars start in order, each when the one before has started, before other init containers after them; they are ended last, the other way round.
func sidecars(s *testNamespace) {
	always := corev1.ContainerRestartPolicyAlways
	sidecar := func(name, then string) corev1.Container {
		c := sh(name, "trap 'echo end "+name+" >> /shared/order; exit 0' TERM; echo "+name+" >> /shared/order; "+then+"; while true; do sleep 1000 & wait; done")
		c.RestartPolicy = &always
		return c
	}
	p := newPod("crew", sh("main", "echo main >> /shared/order; sleep 1; echo end main >> /shared/order"))
	p.Spec.TerminationGracePeriodSeconds = new(int64(10))
	one := sidecar("one", "sleep 2; echo started one >> /shared/order; touch /tmp/started")
	one.StartupProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 30, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/tmp/started"}}}}
	p.Spec.InitContainers = []corev1.Container{one, sidecar("two", "true"), sh("init", "sleep 0.2; echo init >> /shared/order")}
	dir := s.mounted(p)
	s.create(p)
	p = s.awaitEnd("crew")
	if p.Status.Phase != corev1.PodSucceeded {
		s.Errorf("the pod failed:\n%s", s.describe(p))
	}
	want := []string{"one", "started one", "two", "init", "main", "end main", "end two", "end one"}
	if got := lines(s.read(filepath.Join(dir, "order"))); !slices.Equal(got, want) {
		s.Errorf("the order is %q, want %q", got, want)
	}
	// So it is when the pod is deleted.
	r := newPod("sent-home", sh("main", "trap 'sleep 0.5; echo end main >> /shared/order; exit 0' TERM; echo main >> /shared/order; sleep 1000 & wait"))
	r.Spec.TerminationGracePeriodSeconds = new(int64(10))
	r.Spec.InitContainers = []corev1.Container{sidecar("one", "true"), sidecar("two", "true")}
	dir = s.mounted(r)
	s.create(r)
	s.running("sent-home")
	s.await("main to be there", func() bool { return strings.Contains(s.read(filepath.Join(dir, "order")), "main") })
	s.delete("sent-home")
	if got, want := lines(s.read(filepath.Join(dir, "order"))), []string{"one", "two", "main", "end main", "end two", "end one"}; !slices.Equal(got, want) {
		s.Errorf("the order is %q, want %q", got, want)
	}
	// One that ends is started again while the pod runs.
	q := newPod("again", sh("main", forever))
	again := sh("side", "if [ -e /shared/once ]; then "+forever+"; fi; touch /shared/once; exit 1")
	again.RestartPolicy = &always
	q.Spec.InitContainers = []corev1.Container{again}
	s.mounted(q)
	s.create(q)
	s.wait("again", "to have its sidecar again", func(p *corev1.Pod) bool {
		c := container(p, "side")
		return c.RestartCount == 1 && c.State.Running != nil
	})
}

func restartPolicies(s *testNamespace) {
	for policy, script := range map[corev1.RestartPolicy]string{corev1.RestartPolicyAlways: "exit 0", corev1.RestartPolicyOnFailure: "exit 1"} {
		p := newPod(strings.ToLower(string(policy)), sh("main", "sleep 0.2; "+script))
		p.Spec.RestartPolicy = policy
		s.create(p)
	}
	p := newPod("onfailure-well", sh("main", "exit 0"))
	p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	s.create(p)
	s.create(newPod("never", sh("main", "exit 1")))
	for name, code := range map[string]int32{"always": 0, "onfailure": 1} {
		p := s.wait(name, "to be started again", func(p *corev1.Pod) bool { return container(p, "main").RestartCount > 0 })
		if last := container(p, "main").LastTerminationState.Terminated; last == nil || last.ExitCode != code {
			s.Errorf("%s: what was before is %+v", name, last)
		}
		if p.Status.Phase != corev1.PodRunning {
			s.Errorf("%s is %s", name, p.Status.Phase)
		}
	}
	if p := s.awaitEnd("onfailure-well"); p.Status.Phase != corev1.PodSucceeded || container(p, "main").RestartCount != 0 {
		s.Errorf("a pod that ends well is %s after %d restarts", p.Status.Phase, container(p, "main").RestartCount)
	}
	if p := s.awaitEnd("never"); p.Status.Phase != corev1.PodFailed || container(p, "main").RestartCount != 0 {
		s.Errorf("a pod that is never restarted is %s after %d restarts", p.Status.Phase, container(p, "main").RestartCount)
	}
}

// A container that keeps failing is started again after 10 s, then after 20 s.
func restartBackOff(s *testNamespace) {
	p := newPod("crashes", sh("main", "exit 1"))
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	h := s.follow("crashes")
	s.create(p)
	p = s.wait("crashes", "to be started a third time", func(p *corev1.Pod) bool { return container(p, "main").RestartCount >= 3 })
	runs := map[string]corev1.ContainerStateTerminated{} // by container ID
	for _, p := range h.all() {
		c := container(p, "main")
		for _, end := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if end != nil {
				runs[end.ContainerID] = *end
			}
		}
		if run := c.State.Running; run != nil {
			runs[c.ContainerID] = corev1.ContainerStateTerminated{StartedAt: run.StartedAt}
		}
	}
	order := slices.SortedFunc(maps.Values(runs), func(a, b corev1.ContainerStateTerminated) int { return a.StartedAt.Compare(b.StartedAt.Time) })
	if len(order) < 3 {
		s.Fatalf("the runs that were seen: %v", order)
	}
	// The API's times are whole seconds, and the first two runs may be in the same one.
	for i, want := range []time.Duration{20 * time.Second, 10 * time.Second} {
		next, before := order[len(order)-1-i], order[len(order)-2-i]
		if gap := next.StartedAt.Sub(before.FinishedAt.Time); gap < want-time.Second || gap > want+5*time.Second {
			s.Errorf("a run was started %v after the end of the one before, want %v", gap, want)
		}
	}
	for _, d := range []string{"10s", "20s"} {
		want := fmt.Sprintf("back-off %s restarting failed container=main pod=crashes_%s(%s)", d, s.name, p.UID)
		if !h.has(func(p *corev1.Pod) bool {
			w := container(p, "main").State.Waiting
			return w != nil && w.Reason == "CrashLoopBackOff" && w.Message == want
		}) {
			s.Errorf("the container never waited with %q", want)
		}
	}
	s.awaitEvent("crashes", "BackOff: Back-off restarting failed container main in pod crashes_"+s.name)
}

func activeDeadline(s *testNamespace) {
	p := newPod("late", sh("main", forever))
	p.Spec.ActiveDeadlineSeconds = new(int64(2))
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	s.create(p)
	p = s.awaitEnd("late")
	if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "DeadlineExceeded" || p.Status.Message != "Pod was active on the node longer than the specified deadline" {
		s.Errorf("%s, %s: %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
	}
	s.wait("late", "to have no container that runs", func(p *corev1.Pod) bool { return container(p, "main").State.Terminated != nil })
}

func imageFailures(s *testNamespace) {
	never := sh("main", "true")
	never.Image, never.ImagePullPolicy = "skiff.internal/not-there:1", corev1.PullNever
	s.create(newPod("never", never))
	missing := sh("main", "true")
	missing.Image, missing.ImagePullPolicy = "127.0.0.1:1/not-there:1", corev1.PullIfNotPresent
	s.create(newPod("missing", missing))
	invalid := sh("main", "true")
	invalid.Image = "Not/AnImage"
	s.create(newPod("invalid", invalid))

	p := s.wait("never", "to wait with ErrImageNeverPull", func(p *corev1.Pod) bool { return waiting(p, "main") == "ErrImageNeverPull" })
	if m := container(p, "main").State.Waiting.Message; !strings.Contains(m, `Container image "skiff.internal/not-there:1" is not present with pull policy of Never`) {
		s.Errorf("message: %s", m)
	}
	s.awaitEvent("never", "ErrImageNeverPull: ")
	s.wait("missing", "to wait with ImagePullBackOff", func(p *corev1.Pod) bool { return waiting(p, "main") == "ImagePullBackOff" })
	s.awaitEvent("missing", "Pulling: Pulling image \"127.0.0.1:1/not-there:1\"")
	s.awaitEvent("missing", "Failed: Failed to pull image \"127.0.0.1:1/not-there:1\"")
	s.awaitEvent("missing", "Failed: Error: ErrImagePull")
	s.awaitEvent("missing", "BackOff: Back-off pulling image \"127.0.0.1:1/not-there:1\"")
	s.awaitEvent("missing", "Failed: Error: ImagePullBackOff")
	s.wait("invalid", "to wait with InvalidImageName", func(p *corev1.Pod) bool { return waiting(p, "main") == "InvalidImageName" })
	s.awaitEvent("invalid", "InspectFailed: ", "couldn't parse image name")
	// They can be deleted all the same.
	for _, name := range []string{"never", "missing", "invalid"} {
		if took := s.delete(name); took > 10*time.Second {
			s.Errorf("deleting pod %s took %v", name, took)
		}
	}
}

func terminationMessages(s *testNamespace) {
	file, last, long, logged := sh("file", "echo -n said in a file > /dev/termination-log; exit 1"), sh("elsewhere", "echo said elsewhere > /tmp/last"), sh("long", "yes | head -c 10000 > /dev/termination-log"), sh("logged", "echo not this > /dev/stderr; exit 1")
	last.TerminationMessagePath = "/tmp/last"
	logged.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	well := sh("well", "echo nothing is wrong")
	well.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	s.create(newPod("words", file, last, logged, well))
	s.create(newPod("long", long))
	p, q := s.awaitEnd("words"), s.awaitEnd("long")
	for name, want := range map[string]string{"file": "said in a file", "elsewhere": "said elsewhere\n", "logged": "not this\n", "well": ""} {
		if end := container(p, name).State.Terminated; end == nil || end.Message != want {
			s.Errorf("%s: %+v, want the message %.40q", name, end, want)
		}
	}
	if end := container(q, "long").State.Terminated; end == nil || end.Message != strings.Repeat("y\n", 2048) {
		s.Errorf("what is said of much is %d bytes", len(end.Message))
	}
}

// Containers can be added to a pod that runs, and see its processes.
func ephemeralContainers(s *testNamespace) {
	p := newPod("debugged", sh("main", forever))
	s.create(p)
	s.running("debugged")
	p = s.get("debugged")
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{TargetContainerName: "main", EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", Image: "busybox", ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", "cat /proc/1/cmdline | tr '\\0' ' '"}}}}
	if _, err := s.api.CoreV1().Pods(s.name).UpdateEphemeralContainers(s.Context(), "debugged", p, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
	s.wait("debugged", "to have run its debugger", func(p *corev1.Pod) bool { return container(p, "debugger").State.Terminated != nil })
	if got := s.logs("debugged", &corev1.PodLogOptions{Container: "debugger"}); !strings.Contains(got, "sleep 1000") {
		s.Errorf("process 1 is %q", got)
	}
	if p := s.get("debugged"); container(p, "main").RestartCount != 0 || p.Status.Phase != corev1.PodRunning {
		s.Errorf("the pod is %s", p.Status.Phase)
	}
}
