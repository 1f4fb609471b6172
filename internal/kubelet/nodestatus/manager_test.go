package nodestatus

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/kubelettest"
	"skiff/internal/kubelet/machine"
	"skiff/skifftest"
)

const nodeName = "n1"

// readyRuntime is a container runtime that is ready.
type readyRuntime struct{ *kubelettest.Runtime }

func (readyRuntime) StatusKnown() bool   { return true }
func (readyRuntime) RuntimeError() error { return nil }
func (readyRuntime) NetworkError() error { return nil }
func (readyRuntime) Version() string     { return "containerd://2.4.2" }
func (readyRuntime) Handlers() ([]*runtimeapi.RuntimeHandler, *runtimeapi.RuntimeFeatures) {
	return nil, nil
}

// fixture is a manager against an API server.
type fixture struct {
	*testing.T
	api     *skifftest.Server
	runtime *kubelettest.Runtime
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	return &fixture{T: t, api: skifftest.Start(t), runtime: kubelettest.NewRuntime()}
}

// newManager returns a manager that does not run.
func (f *fixture) newManager() *Manager {
	f.Helper()
	m, err := machine.Read(machine.Options{RootDir: f.TempDir(), MaxPods: 110})
	if err != nil {
		f.Fatal(err)
	}
	return New(Options{Client: f.api.InProcess("kubelet", "system:node:"+nodeName, "system:nodes", "system:authenticated"), NodeName: nodeName,
		NodeIPs: []string{"192.0.2.1"}, Machine: m, Runtime: readyRuntime{f.runtime}, Log: slog.New(slog.DiscardHandler)})
}

// run runs a manager until stop is called.
func (f *fixture) run(m *Manager) (stop func()) {
	ctx, cancel := context.WithCancel(f.Context())
	var wg sync.WaitGroup
	wg.Go(func() { m.Run(ctx, &record.FakeRecorder{}) })
	stop = func() { cancel(); wg.Wait() }
	f.Cleanup(stop)
	return stop
}

// awaitReady waits until the API has the node and it is ready.
func (f *fixture) awaitReady() {
	f.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		node, err := f.api.Client().CoreV1().Nodes().Get(f.Context(), nodeName, metav1.GetOptions{})
		if err == nil {
			for _, c := range node.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					return
				}
			}
		}
		if time.Now().After(deadline) {
			f.Fatalf("the node is not ready: %v %v", node, err)
		}
	}
}

// A node that somebody deletes stays deleted until its kubelet is restarted.
func TestNodeDeleted(t *testing.T) {
	f := newFixture(t)
	m := f.newManager()
	stop := f.run(m)
	f.awaitReady()
	if err := f.api.Client().CoreV1().Nodes().Delete(t.Context(), nodeName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	m.mu.Lock()
	m.reportedAt = m.reportedAt.Add(-reportInterval * 2)
	m.mu.Unlock()
	if err := m.report(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("reporting a node that was deleted: %v", err)
	}
	stop()
	f.run(f.newManager())
	f.awaitReady()
}

// A lease is not renewed before this process has reported the node's status: whoever sees it renewed may believe the status.
func TestLeaseAfterReport(t *testing.T) {
	m := &Manager{}
	if m.registered = (&corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "u"}}); m.reportedUID() != "" {
		t.Error("the lease would be renewed for a node whose status was reported by another process")
	}
	if m.setReported(m.registered); m.reportedUID() != "u" {
		t.Error("the lease would not be renewed for a node whose status was reported")
	}
}

// The status lists the node's images, largest first.
func TestImages(t *testing.T) {
	f := newFixture(t)
	f.runtime.AddImage(kubelettest.Image{Name: "nginx:latest", Size: 1000, Present: true})
	f.runtime.AddImage(kubelettest.Image{Name: "big:1", Size: 1 << 30, Present: true})
	images := f.newManager().listImages(t.Context())
	if len(images) != 2 || images[0].Names[0] != "big:1" || images[0].SizeBytes != 1<<30 {
		t.Errorf("images %+v", images)
	}
}

// What volumes are in use is said to be reported only when the API has it.
func TestVolumesInUseReported(t *testing.T) {
	f := newFixture(t)
	m := f.newManager()
	var mu sync.Mutex
	inUse, reported := []corev1.UniqueVolumeName{"a"}, ""
	m.options.VolumesInUse = func() []corev1.UniqueVolumeName {
		mu.Lock()
		defer mu.Unlock()
		return inUse
	}
	m.options.VolumesInUseReported = func(names []corev1.UniqueVolumeName) {
		node, err := f.api.Client().CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil || !slices.Equal(node.Status.VolumesInUse, names) {
			t.Errorf("reported %v, and the API has %v, %v", names, node.Status.VolumesInUse, err)
		}
		mu.Lock()
		defer mu.Unlock()
		reported = fmt.Sprint(names)
	}
	defer f.run(m)()
	for _, names := range [][]corev1.UniqueVolumeName{{"a"}, {"a", "b"}, {}} {
		mu.Lock()
		inUse = names
		mu.Unlock()
		m.ReportNow()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			mu.Lock()
			got := reported
			mu.Unlock()
			if got == fmt.Sprint(names) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("reported %s, want %v", got, names)
			}
		}
	}
}

// The status declares features that the libraries of the scheduler and of admission know.
func TestDeclaredFeatures(t *testing.T) {
	f := newFixture(t)
	defer f.run(f.newManager())()
	f.awaitReady()
	node, err := f.api.Client().CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(node.Status.DeclaredFeatures, declaredFeatures) || !slices.IsSorted(declaredFeatures) {
		t.Errorf("declared are %v, want %v, sorted", node.Status.DeclaredFeatures, declaredFeatures)
	}
	for _, name := range declaredFeatures {
		if _, err := nodedeclaredfeatures.DefaultFramework.GetFeatureRequirements(name); err != nil {
			t.Error(err)
		}
	}
}
