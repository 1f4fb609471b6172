package devices

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"skiff/internal/kubelet/plugins"
)

// gpus is a device plugin.
type gpus struct {
	api.UnsafeDevicePluginServer
	lists chan []*api.Device

	mu       sync.Mutex
	told     []string
	required bool // wants to be told before containers start
}

func (g *gpus) options() *api.DevicePluginOptions {
	return &api.DevicePluginOptions{PreStartRequired: g.required, GetPreferredAllocationAvailable: true}
}

func (g *gpus) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return g.options(), nil
}

func (g *gpus) ListAndWatch(_ *api.Empty, s grpc.ServerStreamingServer[api.ListAndWatchResponse]) error {
	for {
		select {
		case <-s.Context().Done():
			return nil
		case list := <-g.lists:
			if err := s.Send(&api.ListAndWatchResponse{Devices: list}); err != nil {
				return err
			}
		}
	}
}

// GetPreferredAllocation prefers the last ones.
func (g *gpus) GetPreferredAllocation(_ context.Context, r *api.PreferredAllocationRequest) (*api.PreferredAllocationResponse, error) {
	q := r.ContainerRequests[0]
	ids := append([]string{}, q.MustIncludeDeviceIDs...)
	for i := len(q.AvailableDeviceIDs) - 1; i >= 0 && len(ids) < int(q.AllocationSize); i-- {
		ids = append(ids, q.AvailableDeviceIDs[i])
	}
	return &api.PreferredAllocationResponse{ContainerResponses: []*api.ContainerPreferredAllocationResponse{{DeviceIDs: ids}}}, nil
}

func (g *gpus) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	ids := strings.Join(r.ContainerRequests[0].DevicesIds, ",")
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told = append(g.told, "allocate "+ids)
	return &api.AllocateResponse{ContainerResponses: []*api.ContainerAllocateResponse{{Envs: map[string]string{"GPUS": ids}}}}, nil
}

func (g *gpus) PreStartContainer(_ context.Context, r *api.PreStartContainerRequest) (*api.PreStartContainerResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.told = append(g.told, "start "+strings.Join(r.DevicesIds, ","))
	return &api.PreStartContainerResponse{}, nil
}

// register has the plugin listen beside the kubelet's socket and register there.
func (g *gpus) register(t *testing.T, dir string) (stop func()) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) { // a kubelet that starts removes the sockets of plugins
		if _, err := os.Stat(filepath.Join(dir, socketName)); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", filepath.Join(dir, "gpus.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	api.RegisterDevicePluginServer(s, g)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	connection, err := plugins.Connect(filepath.Join(dir, socketName))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r := &api.RegisterRequest{Version: api.Version, Endpoint: "gpus.sock", ResourceName: "test/gpu", Options: g.options()}
	if _, err := api.NewRegistrationClient(connection).Register(ctx, r, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	return s.Stop
}

func devices(health ...string) (list []*api.Device) {
	for i, h := range health {
		list = append(list, &api.Device{ID: fmt.Sprintf("gpu%d", i), Health: h})
	}
	return list
}

// start starts a manager in a directory. stop ends it as the end of the process would.
func start(t *testing.T, dir string) (m *Manager, stop func()) {
	t.Helper()
	m, err := New(Options{Dir: dir, Changed: func() {}, GoneAfter: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return m, stop
}

// has waits until the node has so many devices, and so many healthy ones.
func has(t *testing.T, m *Manager, want string) {
	t.Helper()
	got := func() string {
		capacity, allocatable := m.Resources()
		a, b := capacity["test/gpu"], allocatable["test/gpu"]
		return a.String() + " " + b.String()
	}
	for deadline := time.Now().Add(20 * time.Second); got() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the node has %s, want %s", got(), want)
		}
	}
}

func container(name string, gpus int64) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"test/gpu": *resource.NewQuantity(gpus, resource.DecimalSI)}}}
}

func pod(uid string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)}, Spec: corev1.PodSpec{Containers: containers}}
}

// gets returns the devices that a container gets.
func gets(t *testing.T, m *Manager, p *corev1.Pod, container string) string {
	t.Helper()
	list, err := m.Of(t.Context(), p, container)
	if err != nil {
		return err.Error()
	}
	var ids []string
	for _, r := range list {
		ids = append(ids, r.Envs["GPUS"])
	}
	return strings.Join(ids, ";")
}

// A pod gets devices that no other has, keeps them when the kubelet is restarted, and gives them back.
func TestAllocate(t *testing.T) {
	dir := t.TempDir()
	m, stop := start(t, dir)
	g := &gpus{lists: make(chan []*api.Device, 1), required: true}
	stopPlugin := g.register(t, dir)
	g.lists <- devices(api.Healthy, api.Healthy, api.Unhealthy, api.Healthy)
	has(t, m, "4 3")
	a := pod("a", container("one", 1))
	a.Spec.InitContainers = []corev1.Container{container("init", 2)}
	if err := m.Allocate(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if got := gets(t, m, a, "init") + " " + gets(t, m, a, "one"); got != "gpu1,gpu3 gpu1" {
		t.Errorf("pod a gets %s", got)
	}
	want := "requested number of devices unavailable for test/gpu. Requested: 2, Available: 1"
	if err := m.Allocate(t.Context(), pod("b", container("c", 2))); err == nil || err.Error() != want {
		t.Errorf("pod b: %v", err)
	}
	stopPlugin()
	stop()

	m, _ = start(t, dir)
	has(t, m, "0 0")
	b := pod("b", container("c", 2))
	if err := m.Allocate(t.Context(), b); err == nil || err.Error() != "no healthy devices present; cannot allocate unhealthy devices test/gpu" {
		t.Errorf("pod b without the plugin: %v", err)
	}
	stopPlugin = g.register(t, dir)
	g.lists <- devices(api.Healthy, api.Healthy, api.Healthy, api.Healthy)
	has(t, m, "4 4")
	if got := gets(t, m, a, "one"); got != "gpu1" {
		t.Errorf("after the restart pod a gets %s", got)
	}
	if got := gets(t, m, b, "c"); got != "gpu0,gpu2" {
		t.Errorf("pod b gets %s", got)
	}
	if err := m.Release("a"); err != nil {
		t.Fatal(err)
	}
	if got := gets(t, m, pod("d", container("c", 2)), "c"); got != "gpu1,gpu3" {
		t.Errorf("pod d gets %s", got)
	}
	g.mu.Lock()
	told := strings.Join(g.told, "; ")
	g.mu.Unlock()
	if !strings.HasPrefix(told, "allocate gpu1,gpu3; allocate gpu1; start gpu1,gpu3; start gpu1; ") {
		t.Errorf("the plugin is told: %s", told)
	}
	stopPlugin()
	has(t, m, "0 0") // after the time that a plugin has to come back
}

// What registers has to have the right version and the name of an extended resource.
func TestRegisterRefused(t *testing.T) {
	s := &server{m: &Manager{}}
	for _, r := range []*api.RegisterRequest{{Version: "v2", ResourceName: "test/gpu", Endpoint: "x.sock"}, {Version: api.Version, ResourceName: "cpu", Endpoint: "x.sock"},
		{Version: api.Version, ResourceName: "test/gpu", Endpoint: "../x.sock"}} {
		if _, err := s.Register(t.Context(), r); err == nil {
			t.Errorf("%v was accepted", r)
		}
	}
}
