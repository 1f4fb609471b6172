package kubelet

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/kubelettest"
)

// TestReadinessWhileTerminating probes a pod with a long grace period that says no after it was deleted, and yes again. Its liveness is not probed.
func TestReadinessWhileTerminating(t *testing.T) {
	w := newFixture(t)
	w.runtime.Script("a", kubelettest.Script{StopTakes: time.Hour})
	var code, liveness atomic.Int32
	w.runtime.OnExec(func(_ string, command []string) (*runtimeapi.ExecSyncResponse, error) {
		if command[0] == "alive" {
			liveness.Add(1)
		}
		return &runtimeapi.ExecSyncResponse{ExitCode: code.Load()}, nil
	})
	pod := w.create("web", `{containers: [{name: a, image: nginx, readinessProbe: {periodSeconds: 1, failureThreshold: 1, exec: {command: [ready]}},
		livenessProbe: {periodSeconds: 1, failureThreshold: 1, exec: {command: [alive]}}}]}`)
	w.await("web", ready)
	w.delete("web", 3600)
	w.eventually(func() string {
		if len(w.container(pod.UID, "a").Stops) == 0 {
			return "the container was not asked to stop"
		}
		return ""
	})
	asked := liveness.Load()
	code.Store(1)
	now := w.await("web", func(p *corev1.Pod) bool { return !ready(p) })
	if c := now.Status.ContainerStatuses[0]; now.DeletionTimestamp == nil || c.State.Running == nil || c.Ready || now.Status.Phase != corev1.PodRunning {
		t.Errorf("status %+v", now.Status)
	}
	code.Store(0)
	w.await("web", ready)
	if n := liveness.Load() - asked; n > 1 { // one may have been under way
		t.Errorf("liveness was asked %d times while the pod terminated", n)
	}
	if n := len(w.runtime.Containers(pod.UID, "a")); n != 1 {
		t.Errorf("%d runs of the container", n)
	}
	w.delete("web", 1)
	w.awaitGone("web")
	w.awaitClean()
}

// TestReadinessWhileAnotherStops has one container take long to stop because its liveness probe failed: the readiness of the other is reported.
func TestReadinessWhileAnotherStops(t *testing.T) {
	w := newFixture(t)
	w.runtime.Script("a", kubelettest.Script{StopTakes: time.Hour})
	var ok atomic.Bool
	var alive atomic.Int32
	ok.Store(true)
	w.runtime.OnExec(func(_ string, command []string) (*runtimeapi.ExecSyncResponse, error) {
		if command[0] == "alive" {
			return &runtimeapi.ExecSyncResponse{ExitCode: alive.Load()}, nil
		}
		return &runtimeapi.ExecSyncResponse{ExitCode: map[bool]int32{false: 1}[ok.Load()]}, nil
	})
	pod := w.create("web", `{terminationGracePeriodSeconds: 3600, containers: [{name: a, image: nginx, livenessProbe: {periodSeconds: 1, failureThreshold: 1, exec: {command: [alive]}}},
		{name: b, image: nginx, readinessProbe: {periodSeconds: 1, failureThreshold: 1, exec: {command: [ready]}}}]}`)
	w.await("web", ready)
	alive.Store(1)
	w.eventually(func() string {
		if len(w.container(pod.UID, "a").Stops) == 0 {
			return "the container was not asked to stop"
		}
		return ""
	})
	ok.Store(false)
	w.await("web", func(p *corev1.Pod) bool { return !ready(p) })
	w.delete("web", 1)
	w.awaitGone("web")
	w.awaitClean()
}

// TestHostNetworkIsAskedAtTheNode has a pod on the node's network, whose sandbox has no address: probes and hooks go to the node's, which its status
// and its environment name.
func TestHostNetworkIsAskedAtTheNode(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, rq *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[rq.URL.Path] = true
	}))
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	w := newFixture(t)
	w.stop()
	w.start(func(o *Options) { o.NodeIPs = []string{"127.0.0.1"} })
	pod := w.create("web", strings.ReplaceAll(`{hostNetwork: true, containers: [{name: a, image: nginx, ports: [{containerPort: PORT}],
		startupProbe: {periodSeconds: 1, tcpSocket: {port: PORT}}, readinessProbe: {periodSeconds: 1, httpGet: {path: /ready, port: PORT}},
		livenessProbe: {periodSeconds: 1, tcpSocket: {port: PORT}}, env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}],
		lifecycle: {postStart: {httpGet: {path: /start, port: PORT}}, preStop: {httpGet: {path: /stop, port: PORT}}}}]}`, "PORT", port))
	now := w.await("web", ready)
	if s := now.Status; s.PodIP != "127.0.0.1" || len(s.PodIPs) != 1 || s.HostIP != "127.0.0.1" {
		t.Errorf("addresses %s %v %s", s.PodIP, s.PodIPs, s.HostIP)
	}
	if !slices.ContainsFunc(w.container(pod.UID, "a").Config.Envs, func(e *runtimeapi.KeyValue) bool { return e.Key == "IP" && string(e.Value) == "127.0.0.1" }) {
		t.Errorf("environment %v", w.container(pod.UID, "a").Config.Envs)
	}
	w.delete("web", 30)
	w.awaitGone("web")
	w.awaitClean()
	mu.Lock()
	defer mu.Unlock()
	for _, path := range []string{"/start", "/ready", "/stop"} {
		if !asked[path] {
			t.Errorf("%s was not asked for, only %v", path, asked)
		}
	}
}
