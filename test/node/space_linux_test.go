package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// testNamespace is the namespace of the cluster that one case works in.
type testNamespace struct {
	*testing.T
	*cluster
	name string
}

// space creates a namespace. It is deleted when the case ends, without waiting for that.
func (c *cluster) space(t *testing.T) *testNamespace {
	t.Helper()
	name := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(path.Base(t.Name()))), "-")
	s := &testNamespace{T: t, cluster: c, name: name[:min(len(name), 40)] + "-" + rand.String(5)}
	if _, err := c.api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if c.isDown {
			return
		}
		if err := c.api.CoreV1().Namespaces().Delete(ctx, s.name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	s.await("the namespace's service account", func() bool {
		_, err := c.api.CoreV1().ServiceAccounts(s.name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	return s
}

func (s *testNamespace) await(what string, ok func() bool) {
	s.Helper()
	s.cluster.await(s.T, what, ok)
}

// sh returns a container of busybox that runs a script.
func sh(name, script string) corev1.Container {
	return corev1.Container{Name: name, Image: "busybox", ImagePullPolicy: corev1.PullIfNotPresent, Command: []string{"sh", "-c", script}}
}

// testserver returns a container of the test server.
func testserver(name string, args ...string) corev1.Container {
	return corev1.Container{Name: name, Image: "skiff.internal/testserver", ImagePullPolicy: corev1.PullIfNotPresent, Args: args}
}

// forever is a script that runs until SIGTERM and exits at once then.
const forever = "trap 'exit 0' TERM; sleep 1000 & wait"

// newPod returns a pod with a short grace period that is not restarted.
func newPod(name string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(1)), Containers: containers}}
}

// create creates a pod.
func (s *testNamespace) create(p *corev1.Pod) *corev1.Pod {
	s.Helper()
	made, err := s.api.CoreV1().Pods(s.name).Create(s.Context(), p, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return made
}

// apply creates or updates the ConfigMaps and Secrets in YAML.
func (s *testNamespace) apply(text string) {
	s.Helper()
	for _, document := range strings.Split(text, "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			s.Fatal(err)
		}
		var err error
		switch kind.Kind {
		case "ConfigMap":
			var c corev1.ConfigMap
			if err = yaml.Unmarshal([]byte(document), &c); err == nil {
				if _, err = s.api.CoreV1().ConfigMaps(s.name).Create(s.Context(), &c, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
					_, err = s.api.CoreV1().ConfigMaps(s.name).Update(s.Context(), &c, metav1.UpdateOptions{})
				}
			}
		case "Secret":
			var c corev1.Secret
			if err = yaml.Unmarshal([]byte(document), &c); err == nil {
				if _, err = s.api.CoreV1().Secrets(s.name).Create(s.Context(), &c, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
					_, err = s.api.CoreV1().Secrets(s.name).Update(s.Context(), &c, metav1.UpdateOptions{})
				}
			}
		default:
			s.Fatalf("this makes no %s", kind.Kind)
		}
		if err != nil {
			s.Fatal(err)
		}
	}
}

// parse returns a pod from YAML.
func (s *testNamespace) parse(text string) *corev1.Pod {
	s.Helper()
	var p corev1.Pod
	if err := yaml.Unmarshal([]byte(text), &p); err != nil {
		s.Fatal(err)
	}
	return &p
}

func (s *testNamespace) get(name string) *corev1.Pod {
	s.Helper()
	p, err := s.api.CoreV1().Pods(s.name).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// wait waits until a condition holds for a pod, and returns the pod.
func (s *testNamespace) wait(name, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	s.Helper()
	for deadline := time.Now().Add(awaitTimeout); ; time.Sleep(50 * time.Millisecond) {
		p := s.get(name)
		if ok(p) {
			return p
		}
		if time.Now().After(deadline) {
			s.Fatalf("waited %v for pod %s %s\n%s", awaitTimeout, name, what, s.describe(p))
		}
	}
}

func (s *testNamespace) running(name string) *corev1.Pod {
	s.Helper()
	return s.wait(name, "to be ready", func(p *corev1.Pod) bool { return condition(p, corev1.PodReady).Status == corev1.ConditionTrue })
}

// awaitEnd waits until a pod has a terminal phase.
func (s *testNamespace) awaitEnd(name string) *corev1.Pod {
	s.Helper()
	return s.wait(name, "to end", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	})
}

// output returns the log of a pod once it has succeeded.
func (s *testNamespace) output(p *corev1.Pod) string {
	s.Helper()
	s.create(p)
	if done := s.awaitEnd(p.Name); done.Status.Phase != corev1.PodSucceeded {
		s.Fatalf("pod %s failed\n%s", p.Name, s.describe(done))
	}
	return s.logs(p.Name, &corev1.PodLogOptions{Container: p.Spec.Containers[0].Name})
}

func (s *testNamespace) logs(name string, o *corev1.PodLogOptions) string {
	s.Helper()
	data, err := s.api.CoreV1().Pods(s.name).GetLogs(name, o).DoRaw(s.Context())
	if err != nil {
		s.Fatalf("logs of %s: %v", name, err)
	}
	return string(data)
}

// delete deletes a pod, waits until the API does not have it any more, and returns how long that took.
func (s *testNamespace) delete(name string) time.Duration {
	s.Helper()
	began := time.Now()
	if err := s.api.CoreV1().Pods(s.name).Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.await("pod "+name+" to be gone", func() bool {
		_, err := s.api.CoreV1().Pods(s.name).Get(s.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	return time.Since(began)
}

// events returns the Events about a pod, as "Reason: message".
func (s *testNamespace) events(name string) (out []string) {
	s.Helper()
	list, err := s.api.CoreV1().Events(s.name).List(s.Context(), metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.name", name).String()})
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range list.Items {
		out = append(out, e.Reason+": "+e.Message)
	}
	return out
}

// awaitEvent waits for an Event about a pod that begins with a text and contains others.
func (s *testNamespace) awaitEvent(name, begin string, words ...string) {
	s.Helper()
	var events []string
	for deadline := time.Now().Add(awaitTimeout); ; time.Sleep(100 * time.Millisecond) {
		events = s.events(name)
		if slices.ContainsFunc(events, func(e string) bool {
			return strings.HasPrefix(e, begin) && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e, w) })
		}) {
			return
		}
		if time.Now().After(deadline) {
			s.Fatalf("no event %q %q about pod %s; there are:\n%s", begin, words, name, strings.Join(events, "\n"))
		}
	}
}

// describe returns a pod's status and Events, for messages of failed tests.
func (s *testNamespace) describe(p *corev1.Pod) string {
	out, err := s.command("describe", "pod", p.Name).CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%+v", p.Status)
	}
	return string(out)
}

// history is every status that a pod had.
type history struct {
	mu   sync.Mutex
	list []*corev1.Pod
}

func (h *history) all() []*corev1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.list)
}

// has reports whether a condition held for the pod at some time.
func (h *history) has(ok func(*corev1.Pod) bool) bool { return slices.ContainsFunc(h.all(), ok) }

// phases returns the phases that the pod went through.
func (h *history) phases() (out []corev1.PodPhase) {
	for _, p := range h.all() {
		out = append(out, p.Status.Phase)
	}
	return slices.Compact(out)
}

// ended waits until a terminal phase was observed, and returns the phases that the pod went through.
func (s *testNamespace) ended(h *history) (out []corev1.PodPhase) {
	s.Helper()
	s.await("the last phase", func() bool {
		out = h.phases()
		return slices.ContainsFunc(out, func(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed })
	})
	return out
}

// follow watches a pod that is created later.
func (s *testNamespace) follow(name string) *history {
	s.Helper()
	h := &history{}
	w, err := s.api.CoreV1().Pods(s.name).Watch(s.Context(), metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		s.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok {
				h.mu.Lock()
				h.list = append(h.list, p)
				h.mu.Unlock()
			}
		}
	})
	s.Cleanup(func() {
		w.Stop()
		done.Wait()
	})
	return h
}

// command returns a kubectl command in this namespace.
func (s *testNamespace) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.kubectl, append([]string{"-n", s.name}, args...)...)
	cmd.Env = s.environment()
	return cmd
}

func (s *testNamespace) environment() []string {
	return append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "HOME="+s.home)
}

// raw gets a path of the API.
func (s *testNamespace) raw(path string) (string, error) {
	data, err := s.api.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(s.Context())
	return string(data), err
}

// exec runs a command in a pod's first container, and returns its output.
func (s *testNamespace) exec(pod string, command ...string) string {
	s.Helper()
	url := s.api.CoreV1().RESTClient().Post().Namespace(s.name).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: s.get(pod).Spec.Containers[0].Name, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
	e, err := remotecommand.NewWebSocketExecutor(s.config, "GET", url.String())
	if err != nil {
		s.Fatal(err)
	}
	var out, errs bytes.Buffer
	if err := e.StreamWithContext(s.Context(), remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}); err != nil {
		s.Fatalf("exec in %s of %q: %v\n%s%s", pod, command, err, &out, &errs)
	}
	return out.String()
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	if i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind }); i >= 0 {
		return p.Status.Conditions[i]
	}
	return corev1.PodCondition{}
}

// container returns the status of a container.
func container(p *corev1.Pod, name string) corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		if i := slices.IndexFunc(list, func(c corev1.ContainerStatus) bool { return c.Name == name }); i >= 0 {
			return list[i]
		}
	}
	return corev1.ContainerStatus{}
}

func waiting(p *corev1.Pod, name string) string {
	if w := container(p, name).State.Waiting; w != nil {
		return w.Reason
	}
	return ""
}

// lines returns the lines of a text, without blank ones.
func lines(text string) (out []string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	return out
}

// facts returns lines of the form name=value.
func facts(text string) map[string]string {
	m := map[string]string{}
	for _, line := range lines(text) {
		if name, value, ok := strings.Cut(line, "="); ok {
			m[name] = value
		}
	}
	return m
}

// expect checks facts.
func (s *testNamespace) expect(got map[string]string, want map[string]string) {
	s.Helper()
	for name, value := range want {
		if got[name] != value {
			s.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
}

// mounted mounts a directory of the node at /shared in every container, and returns its path.
func (s *testNamespace) mounted(p *corev1.Pod) string {
	dir := s.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		s.Fatal(err)
	}
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "shared", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}})
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			list[i].VolumeMounts = append(list[i].VolumeMounts, corev1.VolumeMount{Name: "shared", MountPath: "/shared"})
		}
	}
	return dir
}

func (s *testNamespace) read(file string) string {
	s.Helper()
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.Fatal(err)
	}
	return string(data)
}

// closeAll closes files that were only read, whose errors do not matter.
func closeAll(list ...io.Closer) {
	for _, c := range list {
		_ = c.Close()
	}
}
