package dra

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/dra/v1"
)

// gpus is a DRA driver.
type gpus struct {
	api.UnsafeDRAPluginServer
	mu    sync.Mutex
	calls []string
	fail  string
}

func (g *gpus) NodePrepareResources(_ context.Context, r *api.NodePrepareResourcesRequest) (*api.NodePrepareResourcesResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	answer := &api.NodePrepareResourcesResponse{Claims: map[string]*api.NodePrepareResourceResponse{}}
	for _, c := range r.Claims {
		g.calls = append(g.calls, "prepare "+c.Name)
		answer.Claims[c.Uid] = &api.NodePrepareResourceResponse{Error: g.fail, Devices: []*api.Device{{RequestNames: []string{"big"}, CdiDeviceIds: []string{"test/gpu=" + c.Name + "-big"}},
			{RequestNames: []string{"small"}, CdiDeviceIds: []string{"test/gpu=" + c.Name + "-small"}}}}
	}
	return answer, nil
}

func (g *gpus) NodeUnprepareResources(_ context.Context, r *api.NodeUnprepareResourcesRequest) (*api.NodeUnprepareResourcesResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	answer := &api.NodeUnprepareResourcesResponse{Claims: map[string]*api.NodeUnprepareResourceResponse{}}
	for _, c := range r.Claims {
		g.calls = append(g.calls, "unprepare "+c.Name)
		answer.Claims[c.Uid] = &api.NodeUnprepareResourceResponse{Error: g.fail}
	}
	return answer, nil
}

func (g *gpus) failing(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = text
}

func (g *gpus) called() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	text := strings.Join(g.calls, ", ")
	g.calls = nil
	return text
}

// objects are what the API has.
type objects struct {
	mu      sync.Mutex
	claims  map[string]*resourcev1.ResourceClaim
	deleted []string
}

func (o *objects) ResourceClaim(_ context.Context, _, name string) (*resourcev1.ResourceClaim, error) {
	if c := o.claims[name]; c != nil {
		return c, nil
	}
	return nil, errors.New("not found")
}

func (o *objects) DeleteResourceSlices(_ context.Context, driver string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deleted = append(o.deleted, driver)
	return nil
}

func newClaim(name string, pods ...string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name)}}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Driver: "gpu.test", Request: "big"}, {Driver: "gpu.test", Request: "small"}}}}
	for _, uid := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: uid, UID: types.UID(uid)})
	}
	return c
}

// newPod returns a pod with a container that uses a claim, or one request of it.
func newPod(uid, claim, request string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: types.UID(uid)}, Spec: corev1.PodSpec{
		ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: &claim}},
		Containers:     []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu", Request: request}}}}}}}
}

func (g *gpus) listen(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	api.RegisterDRAPluginServer(s, g)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
}

// A claim is prepared once for the pods that share it, also across a restart, and unprepared after the last of them.
func TestPrepare(t *testing.T) {
	dir, g := t.TempDir(), &gpus{}
	endpoint := filepath.Join(dir, "dra.sock")
	g.listen(t, endpoint)
	o := &objects{claims: map[string]*resourcev1.ResourceClaim{"shared": newClaim("shared", "a", "b")}}
	start := func() *Manager {
		m, err := New(Options{Root: dir, Source: o, GoneAfter: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := start()
	a, b := newPod("a", "shared", "small"), newPod("b", "shared", "")
	if err := m.Prepare(t.Context(), a); err == nil || err.Error() != "DRA driver gpu.test is not registered" {
		t.Errorf("without a driver: %v", err)
	}
	if err := m.Validate("gpu.test", endpoint, []string{"v1beta1.DRAPlugin"}); err == nil {
		t.Error("a driver of an old version was accepted")
	}
	register := func() {
		if err := m.Register(t.Context(), "gpu.test", endpoint, []string{api.DRAPluginService}); err != nil {
			t.Fatal(err)
		}
	}
	register()
	g.failing("broken")
	if err := m.Prepare(t.Context(), a); err == nil || err.Error() != "NodePrepareResources failed for ResourceClaim shared: broken" {
		t.Errorf("a driver that fails: %v", err)
	}
	if _, err := m.CDIDevices(a, &a.Spec.Containers[0]); err == nil {
		t.Error("a claim that is not prepared has devices")
	}
	g.failing("")
	g.called()
	for _, pod := range []*corev1.Pod{a, b, a} {
		if err := m.Prepare(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if got := g.called(); got != "prepare shared" {
		t.Errorf("calls: %s", got)
	}
	m = start()
	register()
	for pod, want := range map[*corev1.Pod][]string{a: {"test/gpu=shared-small"}, b: {"test/gpu=shared-big", "test/gpu=shared-small"}} {
		if got, err := m.CDIDevices(pod, &pod.Spec.Containers[0]); err != nil || !slices.Equal(got, want) {
			t.Errorf("pod %s gets %v, %v", pod.Name, got, err)
		}
	}
	if err := m.Unprepare(t.Context(), "a"); err != nil || g.called() != "" {
		t.Errorf("unprepared for the first pod: %v", err)
	}
	g.failing("busy")
	if err := m.Unprepare(t.Context(), "b"); err == nil || !strings.Contains(err.Error(), "NodeUnprepareResources failed for ResourceClaim shared: busy") {
		t.Errorf("a driver that fails: %v", err)
	}
	g.failing("")
	m = start()
	register()
	if err := m.Unprepare(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if got := g.called(); got != "unprepare shared, unprepare shared" {
		t.Errorf("calls: %s", got)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "dra_manager_state")); err != nil || string(data) != `{"Claims":{}}` {
		t.Errorf("the checkpoint is %s, %v", data, err)
	}
	o.claims["other"] = newClaim("other", "somebody")
	if err := m.Prepare(t.Context(), newPod("a", "other", "")); err == nil || err.Error() != "pod a (a) is not allowed to use ResourceClaim other (uid-other)" {
		t.Errorf("a claim of others: %v", err)
	}
}

// What a driver has published is deleted when it has been gone for long.
func TestDeregister(t *testing.T) {
	o := &objects{}
	m, err := New(Options{Root: t.TempDir(), Source: o, GoneAfter: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	m.Deregister(t.Context(), "gpu.test", "")
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		o.mu.Lock()
		done := len(o.deleted) == 1
		o.mu.Unlock()
		if done {
			return
		}
	}
	t.Error("the ResourceSlices of a driver that is gone are still there")
}
