package kubelet

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/kubelettest"
)

// started returns the containers in the order in which they were started.
func (w *fixture) started() (out []string) {
	for _, c := range w.runtime.Calls() {
		if what, ok := strings.CutPrefix(c, "StartContainer "); ok {
			out = append(out, what)
		}
	}
	return out
}

// stopped returns the containers in the order in which they were asked to stop.
func (w *fixture) stopped() (out []string) {
	for _, c := range w.runtime.Calls() {
		if what, ok := strings.CutPrefix(c, "StopContainer "); ok {
			out = append(out, what)
		}
	}
	return out
}

// Init containers run one after another, then sidecars beside the pod's containers; all are stopped in the reverse order.
func TestInitAndSidecars(t *testing.T) {
	w := newFixture(t)
	w.runtime.Script("i", kubelettest.Script{EndsItself: true, Runs: 10 * time.Millisecond})
	w.runtime.Script("j", kubelettest.Script{EndsItself: true, Runs: 10 * time.Millisecond})
	w.create("web", `{initContainers: [{name: i, image: nginx}, {name: s, image: nginx, restartPolicy: Always}, {name: j, image: nginx}, {name: t, image: nginx, restartPolicy: Always}],
		containers: [{name: a, image: nginx}, {name: b, image: nginx}]}`)
	pod := w.await("web", ready)
	if got, want := w.started(), []string{"web/i", "web/s", "web/j", "web/t", "web/a", "web/b"}; !slices.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}
	if s := pod.Status.InitContainerStatuses; len(s) != 4 || s[0].State.Terminated == nil || s[1].State.Running == nil {
		t.Errorf("init containers: %+v", s)
	}
	w.delete("web", 30)
	w.awaitGone("web")
	if got := w.stopped(); len(got) != 4 || !slices.Equal(got[2:], []string{"web/t", "web/s"}) {
		t.Errorf("stopped %v; want a and b, then t, then s", got)
	}
	w.awaitClean()
}

// A Job's pod completes by itself and stays, with nothing but its logs, until it is deleted.
func TestSucceeds(t *testing.T) {
	w := newFixture(t)
	w.runtime.Script("a", kubelettest.Script{EndsItself: true, Runs: 5 * time.Millisecond})
	pod := w.create("job", "{restartPolicy: Never, containers: [{name: a, image: nginx}]}")
	w.await("job", phase(corev1.PodSucceeded))
	w.eventually(func() string {
		groups, _ := w.cgroups.Left()
		volumes, _ := w.volumes.Left()
		if len(groups)+len(volumes) > 0 {
			return "it is not cleaned up"
		}
		return ""
	})
	if c := w.container(pod.UID, "a"); c.State != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("the container is %v", c.State)
	}
	w.delete("job", 30)
	w.awaitGone("job")
	w.awaitClean()
}

// A container that exits is restarted at once, then after a growing back-off.
func TestCrashLoop(t *testing.T) {
	w := newFixture(t)
	w.runtime.Script("a", kubelettest.Script{EndsItself: true, Runs: 5 * time.Millisecond, ExitCode: 3})
	w.create("web", "{containers: [{name: a, image: nginx}]}")
	pod := w.await("web", waitingFor("CrashLoopBackOff"))
	c := pod.Status.ContainerStatuses[0]
	if c.RestartCount != 1 || c.LastTerminationState.Terminated == nil || c.LastTerminationState.Terminated.ExitCode != 3 || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("status %+v", pod.Status)
	}
	if want := "back-off 10s restarting failed container=a pod=web_default(" + string(pod.UID) + ")"; c.State.Waiting.Message != want {
		t.Errorf("message %q, want %q", c.State.Waiting.Message, want)
	}
	w.awaitEvent("web", "Warning BackOff Back-off restarting failed container a in pod web_default(")
	w.delete("web", 30)
	w.awaitGone("web")
	w.awaitClean()
}

// An image that cannot be pulled is tried again after a back-off.
func TestImagePullBackOff(t *testing.T) {
	w := newFixture(t)
	w.create("web", "{containers: [{name: a, image: nosuch}, {name: b, image: nginx}]}")
	pod := w.await("web", waitingFor("ImagePullBackOff"))
	if m := pod.Status.ContainerStatuses[0].State.Waiting.Message; !strings.HasPrefix(m, `Back-off pulling image "nosuch": ErrImagePull: `) {
		t.Errorf("message %q", m)
	}
	if pod.Status.Phase != corev1.PodPending || pod.Status.ContainerStatuses[1].State.Running == nil {
		t.Errorf("status %+v: the other container should run", pod.Status)
	}
	w.awaitEvent("web", `Normal Pulling Pulling image "nosuch"`)
	w.awaitEvent("web", `Warning Failed Failed to pull image "nosuch": `)
	w.awaitEvent("web", "Warning Failed Error: ErrImagePull")
	w.awaitEvent("web", `Normal BackOff Back-off pulling image "nosuch"`)
	w.delete("web", 30)
	w.awaitGone("web")
	w.awaitClean()
}

// Images are pulled by their pull policies, with the pull secrets that match.
func TestPullPolicies(t *testing.T) {
	w := newFixture(t)
	w.runtime.AddImage(kubelettest.Image{Name: "registry.example/private/app:1", Size: 5000, Secret: "right"})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(
		`{"auths": {"registry.example": {"username": "u", "password": "wrong"}, "https://registry.example/private": {"auth": "dTpyaWdodA=="}}}`)}}
	if _, err := w.client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.create("private", "{imagePullSecrets: [{name: pull}], containers: [{name: a, image: 'registry.example/private/app:1'}]}")
	w.await("private", ready)
	w.awaitEvent("private", `Normal Pulled Successfully pulled image "registry.example/private/app:1" in `)
	w.create("never", "{containers: [{name: a, image: nosuch, imagePullPolicy: Never}]}")
	w.await("never", waitingFor("ErrImageNeverPull"))
	w.awaitEvent("never", `Warning ErrImageNeverPull Container image "nosuch" is not present with pull policy of Never`)
	w.create("missing", "{imagePullSecrets: [{name: nosuch}], containers: [{name: a, image: nosuch}]}")
	w.awaitEvent("missing", "Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (nosuch)")
}

// A postStart hook that fails or hangs keeps the container from Running; a pod that is deleted meanwhile terminates all the same.
func TestPostStart(t *testing.T) {
	w := newFixture(t)
	hang := make(chan struct{})
	defer close(hang)
	w.runtime.OnExec(func(_ string, command []string) (*runtimeapi.ExecSyncResponse, error) {
		switch command[0] {
		case "hang":
			<-hang
		case "fail":
			return &runtimeapi.ExecSyncResponse{ExitCode: 1, Stderr: []byte("no")}, nil
		}
		return &runtimeapi.ExecSyncResponse{}, nil
	})
	hook := func(command string) string {
		return "{containers: [{name: a, image: nginx, lifecycle: {postStart: {exec: {command: [" + command + "]}}}}]}"
	}
	w.create("good", hook("good"))
	w.await("good", ready)
	w.create("bad", hook("fail"))
	w.await("bad", func(p *corev1.Pod) bool {
		return waitingFor("PostStartHookError")(p) || waitingFor("CrashLoopBackOff")(p)
	})
	w.awaitEvent("bad", "Warning FailedPostStartHook PostStartHook failed")
	hanging := w.create("hanging", hook("hang"))
	w.eventually(func() string {
		if len(w.runtime.Containers(hanging.UID, "a")) == 0 {
			return "the container was not created"
		}
		return ""
	})
	time.Sleep(100 * time.Millisecond)
	if pod := w.get("hanging"); pod.Status.Phase != corev1.PodPending || pod.Status.ContainerStatuses[0].State.Running != nil {
		t.Errorf("a container whose hook hangs is reported as %+v", pod.Status)
	}
	for _, name := range []string{"hanging", "bad", "good"} {
		w.delete(name, 1)
		w.awaitGone(name)
	}
	w.awaitClean()
}

// preStop counts against the grace period, and a shorter one takes effect at once.
func TestGrace(t *testing.T) {
	w := newFixture(t)
	w.runtime.Script("a", kubelettest.Script{StopTakes: time.Hour})
	w.runtime.OnExec(func(string, []string) (*runtimeapi.ExecSyncResponse, error) {
		time.Sleep(1200 * time.Millisecond)
		return &runtimeapi.ExecSyncResponse{}, nil
	})
	pod := w.create("web", "{containers: [{name: a, image: nginx, lifecycle: {preStop: {exec: {command: [x]}}}}]}")
	w.await("web", ready)
	w.delete("web", 3600)
	w.eventually(func() string {
		if len(w.container(pod.UID, "a").Stops) == 0 {
			return "the container was not asked to stop"
		}
		return ""
	})
	if grace := w.container(pod.UID, "a").Stops[0]; grace > 3599*time.Second || grace < 3590*time.Second {
		t.Errorf("grace period %v, want 3600 s less the 1.2 s of the hook", grace)
	}
	w.delete("web", 2)
	w.awaitGone("web")
	w.awaitClean()
}

// A pod that exceeds its activeDeadlineSeconds fails for that reason.
func TestDeadline(t *testing.T) {
	w := newFixture(t)
	w.create("job", "{activeDeadlineSeconds: 1, restartPolicy: Never, terminationGracePeriodSeconds: 1, containers: [{name: a, image: nginx}]}")
	pod := w.await("job", phase(corev1.PodFailed))
	if pod.Status.Reason != "DeadlineExceeded" || pod.Status.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("status %+v", pod.Status)
	}
}

// Pods that do not fit on the node are rejected.
func TestAdmission(t *testing.T) {
	w := newFixture(t)
	w.create("huge", "{containers: [{name: a, image: nginx, resources: {requests: {cpu: 10000}}}]}")
	w.create("elsewhere", "{nodeSelector: {disk: ssd}, containers: [{name: a, image: nginx}]}")
	w.create("sysctl", "{securityContext: {sysctls: [{name: kernel.msgmax, value: '65536'}]}, containers: [{name: a, image: nginx}]}")
	w.create("first", "{containers: [{name: a, image: nginx, ports: [{containerPort: 80, hostPort: 8080}]}]}")
	w.await("first", ready)
	w.create("second", "{containers: [{name: a, image: nginx, ports: [{containerPort: 80, hostPort: 8080}]}]}")
	for name, reason := range map[string]string{"huge": "OutOfcpu", "elsewhere": "NodeAffinity", "sysctl": "SysctlForbidden", "second": "NodePorts"} {
		pod := w.await(name, phase(corev1.PodFailed))
		if pod.Status.Reason != reason || !strings.HasPrefix(pod.Status.Message, "Pod was rejected: ") {
			t.Errorf("%s: %s %q, want %s", name, pod.Status.Reason, pod.Status.Message, reason)
		}
		w.awaitEvent(name, "Warning "+reason+" ")
	}
	if n := len(w.runtime.Sandboxes(w.get("huge").UID)); n > 0 {
		t.Error("a pod that was rejected has a sandbox")
	}
}

// Liveness probes have containers restarted, readiness probes take the pod out of service.
func TestProbes(t *testing.T) {
	w := newFixture(t)
	answer := make(chan int32, 1)
	answer <- 0
	w.runtime.OnExec(func(string, []string) (*runtimeapi.ExecSyncResponse, error) {
		code := <-answer
		answer <- code
		return &runtimeapi.ExecSyncResponse{ExitCode: code}, nil
	})
	pod := w.create("web", `{terminationGracePeriodSeconds: 2, containers: [{name: a, image: nginx, livenessProbe: {periodSeconds: 1, failureThreshold: 1, exec: {command: [x]}}},
		{name: b, image: nginx, readinessProbe: {periodSeconds: 1, failureThreshold: 1, exec: {command: [x]}}}]}`)
	w.await("web", ready)
	<-answer
	answer <- 1
	w.await("web", func(p *corev1.Pod) bool { return !ready(p) })
	w.awaitEvent("web", "Normal Killing Container a failed liveness probe, will be restarted")
	w.eventually(func() string {
		if len(w.runtime.Containers(pod.UID, "a")) < 2 {
			return "the container was not restarted"
		}
		return ""
	})
}
