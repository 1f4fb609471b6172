package kubelet

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"skiff/internal/kubelet/eviction"
	"skiff/internal/kubelet/kubelettest"
	"skiff/skifftest"
)

const (
	nodeName = "n1"
	patience = 20 * time.Second
)

// fixture is a kubelet on an API server, with an imaginary container runtime.
type fixture struct {
	*testing.T
	api     *skifftest.Server
	client  kubernetes.Interface
	runtime *kubelettest.Runtime
	volumes *kubelettest.Volumes
	cgroups *kubelettest.Cgroups
	dir     string
	kubelet *Kubelet
	stop    func()
	prepare func(*Kubelet) // before it is run
}

func newFixture(t *testing.T, options ...skifftest.Option) *fixture {
	t.Helper()
	t.Parallel() // most of it is waiting
	api := skifftest.Start(t, options...)
	w := &fixture{T: t, api: api, client: api.Client(), runtime: kubelettest.NewRuntime(), volumes: &kubelettest.Volumes{}, cgroups: &kubelettest.Cgroups{}, dir: t.TempDir()}
	w.runtime.AddImage(kubelettest.Image{Name: "nginx:latest", Size: 1000, Present: true})
	w.start()
	return w
}

// start starts the kubelet, as it would be started on a machine that has run it before.
func (w *fixture) start(change ...func(*Options)) {
	w.Helper()
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	o := Options{Client: w.api.InProcess("kubelet", "system:node:"+nodeName, "system:nodes", "system:authenticated"), NodeName: nodeName, NodeIPs: []string{"192.0.2.1"},
		Runtime: w.runtime, Volumes: w.volumes, Cgroups: w.cgroups, RootDir: filepath.Join(w.dir, "kubelet"), LogDir: filepath.Join(w.dir, "pods"),
		ContainerLogDir: filepath.Join(w.dir, "containers"), ClusterDNS: []string{"10.43.0.10"}, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))}
	for _, c := range change {
		c(&o)
	}
	k, err := New(o)
	if err != nil {
		w.Fatal(err)
	}
	// How much this machine has left is no matter of these tests.
	k.measure = func(context.Context) (eviction.Signals, error) { return eviction.Signals{}, nil }
	if w.prepare != nil {
		w.prepare(k)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := k.Run(ctx); err != nil {
			w.Error(err)
		}
	})
	w.kubelet = k
	w.stop = func() {
		cancel()
		running.Wait()
	}
	w.Cleanup(w.stop)
}

func (w *fixture) eventually(what func() string) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		missing := what()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("after %v: %s", patience, missing)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// create creates a pod on the node, from YAML of its spec.
func (w *fixture) create(name, spec string) *corev1.Pod {
	w.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		w.Fatal(err)
	}
	pod.Spec.NodeName = nodeName
	no := false
	pod.Spec.AutomountServiceAccountToken = &no
	made, err := w.client.CoreV1().Pods("default").Create(w.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return made
}

func (w *fixture) get(name string) *corev1.Pod {
	w.Helper()
	pod, err := w.client.CoreV1().Pods("default").Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return pod
}

// await waits until a pod is as wanted.
func (w *fixture) await(name string, is func(*corev1.Pod) bool) (pod *corev1.Pod) {
	w.Helper()
	w.eventually(func() string {
		if pod = w.get(name); is(pod) {
			return ""
		}
		s, _ := yaml.Marshal(pod.Status)
		return fmt.Sprintf("pod %s is\n%s\ncalls:\n%s\nevents:\n%s", name, s, strings.Join(w.runtime.Calls(), "\n"), strings.Join(w.events(name), "\n"))
	})
	return pod
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func phase(p corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return pod.Status.Phase == p }
}

// waitingFor reports whether the first container waits for a reason.
func waitingFor(reason string) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		list := pod.Status.ContainerStatuses
		return len(list) > 0 && list[0].State.Waiting != nil && list[0].State.Waiting.Reason == reason
	}
}

func (w *fixture) delete(name string, grace int64) {
	w.Helper()
	if err := w.client.CoreV1().Pods("default").Delete(w.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		w.Fatal(err)
	}
}

func (w *fixture) awaitGone(name string) {
	w.Helper()
	w.eventually(func() string {
		pod, err := w.client.CoreV1().Pods("default").Get(w.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		s, _ := yaml.Marshal(pod)
		return fmt.Sprintf("pod %s is still there: %s\ncalls:\n%s", name, s, strings.Join(w.runtime.Calls(), "\n"))
	})
}

// awaitClean waits until nothing of any pod is left.
func (w *fixture) awaitClean() {
	w.Helper()
	w.eventually(func() string {
		if left := w.runtime.Empty(); left != "" {
			return left
		}
		volumes, _ := w.volumes.Left()
		groups, _ := w.cgroups.Left()
		dirs, _ := os.ReadDir(filepath.Join(w.kubelet.options.RootDir, "pods"))
		logs, _ := os.ReadDir(w.kubelet.options.LogDir)
		links, _ := os.ReadDir(w.kubelet.options.ContainerLogDir)
		if n := len(volumes) + len(groups) + len(dirs) + len(logs) + len(links); n > 0 {
			return fmt.Sprintf("left: volumes %v, cgroups %v, directories %v, logs %v, links %v", volumes, groups, dirs, logs, links)
		}
		w.kubelet.mu.Lock()
		defer w.kubelet.mu.Unlock()
		if len(w.kubelet.workers) > 0 {
			return fmt.Sprintf("%d workers are left", len(w.kubelet.workers))
		}
		return ""
	})
}

// events returns the events about a pod: "Normal Pulled Container image …".
func (w *fixture) events(name string) (out []string) {
	list, err := w.client.CoreV1().Events("default").List(w.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range list.Items {
		out = append(out, fmt.Sprintf("%s %s %s", e.Type, e.Reason, e.Message))
	}
	return out
}

// awaitEvent waits for an event that begins so.
func (w *fixture) awaitEvent(name, prefix string) {
	w.Helper()
	w.eventually(func() string {
		all := w.events(name)
		for _, e := range all {
			if strings.HasPrefix(e, prefix) {
				return ""
			}
		}
		return fmt.Sprintf("no event %q among\n%s", prefix, strings.Join(all, "\n"))
	})
}

// container returns the newest run of a container.
func (w *fixture) container(uid types.UID, name string) kubelettest.Container {
	w.Helper()
	runs := w.runtime.Containers(uid, name)
	if len(runs) == 0 {
		w.Fatalf("container %s was never created", name)
	}
	return runs[len(runs)-1]
}

func (w *fixture) createConfigMap(name string, data map[string]string) {
	w.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
	if _, err := w.client.CoreV1().ConfigMaps("default").Create(w.Context(), m, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *fixture) updateEphemeral(pod *corev1.Pod) {
	w.Helper()
	if _, err := w.client.CoreV1().Pods("default").UpdateEphemeralContainers(w.Context(), pod.Name, pod, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}
