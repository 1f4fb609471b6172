package cri_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/kubelettest"
)

// run starts a container of a pod in its sandbox, a new one if it has none.
func run(t *testing.T, r *kubelettest.Runtime, pod *corev1.Pod, c *corev1.Container, sandbox string, restarts int, mounts ...*runtimeapi.Mount) (in, id string) {
	t.Helper()
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)}, Labels: cri.PodLabels(pod),
		LogDirectory: t.TempDir()}
	var err error
	if sandbox == "" {
		if sandbox, err = r.RunPodSandbox(t.Context(), config, ""); err != nil {
			t.Fatal(err)
		}
	}
	id, err = r.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(restarts)},
		Image: &runtimeapi.ImageSpec{Image: "nginx"}, Labels: cri.ContainerLabels(pod, c.Name), Annotations: cri.ContainerAnnotations(pod, c, restarts, &runtimeapi.LinuxContainerResources{CpuShares: 2, MemoryLimitInBytes: 5}), LogPath: c.Name + ".log", Mounts: mounts}, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	return sandbox, id
}

func newPod() *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(17))}}
	pod.Name, pod.Namespace, pod.UID = "web", "default", "u"
	return pod
}

// What is written into a container's annotations comes back: enough to go on with it, or to end it properly.
func TestLook(t *testing.T) {
	r := kubelettest.NewRuntime()
	r.AddImage(kubelettest.Image{Name: "nginx", Present: true})
	pod := newPod()
	c := &corev1.Container{Name: "a", Image: "nginx", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"bye"}}}}}
	in, first := run(t, r, pod, c, "", 0)
	r.Exit(first, 1)
	_, second := run(t, r, pod, c, in, 1)
	o := cri.NewObserver(r, t.TempDir())
	got, err := o.Observe(t.Context(), pod.UID)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Sandboxes) != 1 || len(got.Containers) != 2 || got.Find("a").ID != second || got.FindActive("a").ID != second || len(got.Running()) != 1 || len(got.IPs()) != 1 {
		t.Fatalf("pod %+v", got)
	}
	run := got.Find("a")
	if run.Given.GetCpuShares() != 2 || run.Given.GetMemoryLimitInBytes() != 5 || run.RestartCount != 1 || run.Hash != cri.Hash(c) || run.State != cri.Running {
		t.Errorf("container %+v", run)
	}
	restored, spec := run.Restored(pod.UID)
	if restored.Name != "web" || *restored.Spec.TerminationGracePeriodSeconds != 17 || spec.Lifecycle.PreStop.Exec.Command[0] != "bye" || spec.Ports[0].Name != "http" {
		t.Errorf("restored %+v, %+v", restored, spec)
	}
	if other, err := o.Observe(t.Context(), "other"); err != nil || !other.Empty() {
		t.Errorf("another pod: %+v, %v", other, err)
	}
}

// A container's last words are in the file it was given, or, if it failed, in its log.
func TestTerminationMessage(t *testing.T) {
	r := kubelettest.NewRuntime()
	r.AddImage(kubelettest.Image{Name: "nginx", Present: true})
	pods := t.TempDir()
	for name, test := range map[string]struct {
		policy  corev1.TerminationMessagePolicy
		written string
		code    int32
		want    string
	}{
		"file":             {corev1.TerminationMessageReadFile, "from the file", 0, "from the file"},
		"nothing":          {corev1.TerminationMessageReadFile, "", 1, ""},
		"log":              {corev1.TerminationMessageFallbackToLogsOnError, "", 1, "hello\n"},
		"file before log":  {corev1.TerminationMessageFallbackToLogsOnError, "from the file", 1, "from the file"},
		"no log if it was": {corev1.TerminationMessageFallbackToLogsOnError, "", 0, ""},
		"too much":         {corev1.TerminationMessageReadFile, strings.Repeat("x", 5000), 0, strings.Repeat("x", 4096)},
	} {
		pod := newPod()
		pod.UID += types.UID(name)
		file := messageFile(t, pods, pod, "a")
		if err := os.WriteFile(file, []byte(test.written), 0o644); err != nil {
			t.Fatal(err)
		}
		c := &corev1.Container{Name: "a", Image: "nginx", TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: test.policy}
		_, id := run(t, r, pod, c, "", 0, &runtimeapi.Mount{HostPath: file, ContainerPath: "/dev/termination-log"})
		r.Exit(id, test.code)
		got, err := cri.NewObserver(r, pods).Observe(t.Context(), pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		if m := got.Find("a").Message; m != test.want {
			t.Errorf("%s: %.60q, want %.60q", name, m, test.want)
		}
	}
}

// messageFile returns where the kubelet makes the file of a termination message, in a directory that is made.
func messageFile(t *testing.T, pods string, pod *corev1.Pod, container string) string {
	t.Helper()
	dir := filepath.Join(pods, string(pod.UID), cri.TerminationMessageDir, container)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "words")
}

// The same container with another image is another container.
func TestHash(t *testing.T) {
	a := corev1.Container{Name: "c", Image: "x"}
	b := a
	b.Env = []corev1.EnvVar{{Name: "E"}}
	if cri.Hash(&a) != cri.Hash(&b) {
		t.Error("what does not matter does")
	}
	b.Image = "y"
	if cri.Hash(&a) == cri.Hash(&b) {
		t.Error("the image does not matter")
	}
}

// counting counts how often it is asked about single containers, and has sandboxes go away while they are looked at.
type counting struct {
	*kubelettest.Runtime
	asked int
	gone  string
}

func (c *counting) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	c.asked++
	return c.Runtime.ContainerStatus(ctx, id)
}

func (c *counting) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	if id == c.gone {
		return nil, status.Error(codes.NotFound, "it went away just now")
	}
	return c.Runtime.PodSandboxStatus(ctx, id)
}

// Of runs that have ended nobody is asked twice, until they are gone; what goes away meanwhile is not there; what fails fails.
func TestLookAgain(t *testing.T) {
	r := &counting{Runtime: kubelettest.NewRuntime()}
	r.AddImage(kubelettest.Image{Name: "nginx", Present: true})
	pod, c := newPod(), &corev1.Container{Name: "a", Image: "nginx"}
	in, first := run(t, r.Runtime, pod, c, "", 0)
	r.Exit(first, 3)
	_, second := run(t, r.Runtime, pod, c, in, 1)
	o := cri.NewObserver(r, t.TempDir())
	look := func(wantContainers, wantAsked int) *cri.Pod {
		t.Helper()
		r.asked = 0
		p, err := o.Observe(t.Context(), pod.UID)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Containers) != wantContainers || r.asked != wantAsked {
			t.Errorf("%d containers, asked %d times; want %d and %d", len(p.Containers), r.asked, wantContainers, wantAsked)
		}
		return p
	}
	look(2, 2)
	if p := look(2, 1); p.Containers[1].ID != first || p.Containers[1].ExitCode != 3 {
		t.Errorf("what is remembered: %+v", p.Containers[1])
	}
	o.Forget(pod.UID)
	look(2, 2)
	if err := r.RemoveContainer(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	look(1, 1)
	r.gone = in
	if p := look(1, 1); len(p.Sandboxes) != 0 || p.Active(p.Find("a")) || len(p.IPs()) != 0 {
		t.Errorf("its sandbox is gone: %+v", p)
	}
	r.Fail("ListContainers", status.Error(codes.Unavailable, "down"))
	if _, err := o.Observe(t.Context(), pod.UID); !cri.IsUnavailable(err) {
		t.Errorf("a runtime that fails: %v", err)
	}
	r.Fail("ContainerStatus", status.Error(codes.NotFound, "removed just now"))
	if p := look(0, 1); p.Find("a") != nil || second == "" {
		t.Errorf("a container that is gone: %+v", p)
	}
}

// A pod needs another sandbox if it has none that works.
func TestSandboxNeed(t *testing.T) {
	sandbox := func(id string, attempt uint32, ready, host bool, ip string) *runtimeapi.PodSandboxStatus {
		s := &runtimeapi.PodSandboxStatus{Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt}, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
			Network: &runtimeapi.PodSandboxNetworkStatus{Ip: ip}, Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{}}}}
		if ready {
			s.State = runtimeapi.PodSandboxState_SANDBOX_READY
		}
		if host {
			s.Linux.Namespaces.Options.Network = runtimeapi.NamespaceMode_NODE
		}
		return s
	}
	for name, test := range map[string]struct {
		have []*runtimeapi.PodSandboxStatus
		host bool
		want cri.SandboxNeed
	}{
		"none":           {nil, false, cri.SandboxNeed{Needed: true, Reason: "no pod sandbox exists"}},
		"one":            {[]*runtimeapi.PodSandboxStatus{sandbox("a", 2, true, false, "10.0.0.1")}, false, cri.SandboxNeed{Attempt: 2, ID: "a"}},
		"on the host":    {[]*runtimeapi.PodSandboxStatus{sandbox("a", 0, true, true, "")}, true, cri.SandboxNeed{ID: "a"}},
		"dead":           {[]*runtimeapi.PodSandboxStatus{sandbox("a", 2, false, false, "")}, false, cri.SandboxNeed{Needed: true, Attempt: 3, ID: "a", Reason: "pod sandbox is not ready"}},
		"two":            {[]*runtimeapi.PodSandboxStatus{sandbox("b", 1, true, false, "10.0.0.1"), sandbox("a", 0, true, false, "10.0.0.2")}, false, cri.SandboxNeed{Needed: true, Attempt: 2, ID: "b", Reason: "multiple pod sandboxes are ready and need to be reconciled"}},
		"another mode":   {[]*runtimeapi.PodSandboxStatus{sandbox("a", 0, true, false, "10.0.0.1")}, true, cri.SandboxNeed{Needed: true, Attempt: 1, Reason: "network namespace mode changed and sandbox needs to be recreated"}},
		"no address":     {[]*runtimeapi.PodSandboxStatus{sandbox("a", 0, true, false, "")}, false, cri.SandboxNeed{Needed: true, Attempt: 1, ID: "a", Reason: "pod sandbox has no IP address"}},
		"one and a dead": {[]*runtimeapi.PodSandboxStatus{sandbox("b", 1, true, false, "10.0.0.1"), sandbox("a", 0, false, false, "")}, false, cri.SandboxNeed{Attempt: 1, ID: "b"}},
	} {
		if got := (&cri.Pod{Sandboxes: test.have}).SandboxNeed(test.host); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
