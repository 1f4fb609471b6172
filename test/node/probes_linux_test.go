package node

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// kinds are the probe handlers, and the port of the server that each probes.
var kinds = []struct {
	name string
	port int
}{{"exec", 8081}, {"http", 8082}, {"tcp", 8083}, {"grpc", 8084}}

// handler returns the probe handler of a kind for a port.
func handler(kind string, port int) corev1.ProbeHandler {
	switch kind {
	case "exec":
		return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/testserver", "get", fmt.Sprintf("http://127.0.0.1:%d/healthz", port)}}}
	case "http":
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt(port)}}
	case "tcp":
		return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port + 1000)}}
	default:
		return corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(port + 1000)}}
	}
}

// servers are a test server for each kind.
func servers(p *corev1.Pod, set func(*corev1.Container, corev1.ProbeHandler), args ...string) {
	for _, k := range kinds {
		c := testserver(k.name, append([]string{"--listen", ":" + strconv.Itoa(k.port)}, args...)...)
		switch k.name {
		case "tcp", "grpc":
			c.Args = append(c.Args, "--"+k.name, ":"+strconv.Itoa(k.port+1000))
		}
		set(&c, handler(k.name, k.port))
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
}

// post sends a POST request to a test server.
func (s *testNamespace) post(p *corev1.Pod, port int, path string) {
	s.Helper()
	client := http.Client{Timeout: 2 * time.Second}
	s.await(fmt.Sprintf("the test server at %s:%d", p.Status.PodIP, port), func() bool {
		resp, err := client.Post(fmt.Sprintf("http://%s:%d%s", p.Status.PodIP, port, path), "", nil)
		if err != nil {
			return false
		}
		closeAll(resp.Body)
		return resp.StatusCode == http.StatusOK
	})
}

func (s *testNamespace) withIP(name string) *corev1.Pod {
	s.Helper()
	return s.wait(name, "to have an address", func(p *corev1.Pod) bool { return p.Status.PodIP != "" })
}

func readinessProbes(s *testNamespace) {
	p := newPod("ready")
	servers(p, func(c *corev1.Container, h corev1.ProbeHandler) {
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, FailureThreshold: 1}
	}, "--failing")
	s.create(p)
	p = s.wait("ready", "to run", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "" })
	if c := condition(p, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "ContainersNotReady" || c.Message != "containers with unready status: [exec http tcp grpc]" {
		s.Errorf("Ready: %+v", c)
	}
	for _, k := range kinds {
		s.post(p, k.port, "/mend")
		s.wait("ready", "to have a ready container "+k.name, func(p *corev1.Pod) bool { return container(p, k.name).Ready })
	}
	s.running("ready")
	for _, k := range kinds {
		s.post(p, k.port, "/fail")
		now := s.wait("ready", "to have an unready container "+k.name, func(p *corev1.Pod) bool { return !container(p, k.name).Ready })
		if c := container(now, k.name); c.RestartCount != 0 || c.State.Running == nil {
			s.Errorf("container %s: %+v", k.name, c)
		}
		if condition(now, corev1.PodReady).Status != corev1.ConditionFalse {
			s.Errorf("the pod is ready without %s", k.name)
		}
	}
	s.awaitEvent("ready", "Unhealthy: Readiness probe failed: HTTP probe failed with statuscode: 500")
	s.awaitEvent("ready", "Unhealthy: Readiness probe failed: ", "500 Internal Server Error")
	s.awaitEvent("ready", "Unhealthy: Readiness probe failed: dial tcp ", "connection refused")
	s.awaitEvent("ready", "Unhealthy: Readiness probe failed: service unhealthy (responded with \"NOT_SERVING\")")
}

func livenessProbes(s *testNamespace) {
	p := newPod("alive")
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	servers(p, func(c *corev1.Container, h corev1.ProbeHandler) {
		c.LivenessProbe = &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, FailureThreshold: 1, InitialDelaySeconds: 1}
	})
	s.create(p)
	p = s.running("alive")
	for _, k := range kinds {
		s.post(p, k.port, "/fail")
	}
	for _, k := range kinds {
		now := s.wait("alive", "to have container "+k.name+" again", func(p *corev1.Pod) bool {
			c := container(p, k.name)
			return c.RestartCount > 0 && c.State.Running != nil
		})
		if last := container(now, k.name).LastTerminationState.Terminated; last == nil || last.ContainerID == container(now, k.name).ContainerID {
			s.Errorf("%s: %+v", k.name, last)
		}
		s.awaitEvent("alive", "Killing: Container "+k.name+" failed liveness probe, will be restarted")
	}
	if q := s.running("alive"); q.Status.PodIP != p.Status.PodIP || q.UID != p.UID {
		s.Error("it is another pod now")
	}
	for _, k := range kinds {
		if n := container(s.get("alive"), k.name).RestartCount; n != 1 {
			s.Errorf("container %s was started %d times again", k.name, n)
		}
	}
	s.awaitEvent("alive", "Unhealthy: Liveness probe failed: HTTP probe failed with statuscode: 500")
}

// Until its startup probe has succeeded, a container is neither ready nor killed by its liveness probe.
func startupProbes(s *testNamespace) {
	p := newPod("starts")
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	servers(p, func(c *corev1.Container, h corev1.ProbeHandler) {
		c.StartupProbe = &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, FailureThreshold: 60}
		c.LivenessProbe = &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, FailureThreshold: 1}
	}, "--failing")
	h := s.follow("starts")
	s.create(p)
	p = s.withIP("starts")
	s.awaitEvent("starts", "Unhealthy: Startup probe failed: ")
	for _, k := range kinds {
		s.post(p, k.port, "/mend")
	}
	p = s.running("starts")
	for _, k := range kinds {
		if c := container(p, k.name); c.RestartCount != 0 || c.Started == nil || !*c.Started {
			s.Errorf("container %s: %+v", k.name, c)
		}
		if !h.has(func(p *corev1.Pod) bool {
			c := container(p, k.name)
			return c.State.Running != nil && c.Started != nil && !*c.Started && !c.Ready
		}) {
			s.Errorf("container %s was never seen running and not started", k.name)
		}
	}
}

func startupFails(s *testNamespace) {
	p := newPod("stuck", testserver("main", "--failing"))
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	p.Spec.Containers[0].StartupProbe = &corev1.Probe{ProbeHandler: handler("http", 8080), PeriodSeconds: 1, FailureThreshold: 3}
	h := s.follow("stuck")
	s.create(p)
	s.wait("stuck", "to be started again", func(p *corev1.Pod) bool { return container(p, "main").RestartCount > 0 })
	s.awaitEvent("stuck", "Killing: Container main failed startup probe, will be restarted")
	if slices.ContainsFunc(h.all(), func(p *corev1.Pod) bool { c := container(p, "main"); return c.Ready || c.Started != nil && *c.Started }) {
		s.Error("the container was started or ready at some time")
	}
	if e := strings.Join(s.events("stuck"), "\n"); !strings.Contains(e, "Startup probe failed: HTTP probe failed with statuscode: 500") {
		s.Errorf("events:\n%s", e)
	}
}
