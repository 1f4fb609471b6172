package node

import (
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// freePorts returns ports of this machine that nothing listens on.
func (s *testNamespace) freePorts(n int) (ports []int) {
	s.Helper()
	for range n {
		l, err := net.Listen("tcp", ":0")
		if err != nil {
			s.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// A pod on the host network is probed at the node's IP, which is also in its status and environment.
func hostNetworkProbes(s *testNamespace) {
	ports := s.freePorts(3)
	at := func(i int) string { return ":" + strconv.Itoa(ports[i]) }
	c := testserver("main", "--listen", at(0), "--tcp", at(1), "--grpc", at(2))
	c.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(ports[1])}}, PeriodSeconds: 1, FailureThreshold: 60}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt(ports[0])}}, PeriodSeconds: 1, FailureThreshold: 1}
	c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(ports[2])}}, PeriodSeconds: 1, FailureThreshold: 60}
	c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/hostname", Port: intstr.FromInt(ports[0])}}}
	p := newPod("host", c)
	p.Spec.HostNetwork = true
	s.create(p)
	p = s.running("host")
	if p.Status.PodIP == "" || p.Status.PodIP != p.Status.HostIP || len(p.Status.PodIPs) != len(p.Status.HostIPs) {
		s.Errorf("addresses %v of a pod on a node with %v", p.Status.PodIPs, p.Status.HostIPs)
	}
	s.post(p, ports[0], "/fail")
	s.wait("host", "not to be ready", func(p *corev1.Pod) bool { return condition(p, corev1.PodReady).Status == corev1.ConditionFalse })
	s.post(p, ports[0], "/mend")
	s.wait("host", "to be ready again", func(p *corev1.Pod) bool { return condition(p, corev1.PodReady).Status == corev1.ConditionTrue })
	s.delete("host")
	for _, e := range s.events("host") {
		if strings.HasPrefix(e, "FailedPreStopHook") {
			s.Error(e)
		}
	}
}

// The readiness of a terminating pod is probed until it exits, and its endpoint follows; its liveness is not probed.
func terminatingReadiness(s *testNamespace) {
	c := testserver("main", "--listen", ":8081")
	h := handler("http", 8081)
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, FailureThreshold: 1}
	c.LivenessProbe = &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, FailureThreshold: 1}
	c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 600}}}
	p := newPod("leaving", c)
	p.Labels = map[string]string{"app": "leaving"}
	grace := int64(600)
	p.Spec.TerminationGracePeriodSeconds = &grace
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "leaving"}, Spec: corev1.ServiceSpec{Selector: p.Labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt(8081)}}}}
	if _, err := s.api.CoreV1().Services(s.name).Create(s.Context(), service, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	s.create(p)
	p = s.running("leaving")
	endpoint := func(what string, serving, terminating bool) {
		s.Helper()
		s.await("an endpoint that "+what, func() bool {
			list, err := s.api.DiscoveryV1().EndpointSlices(s.name).List(s.Context(), metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=leaving"})
			if err != nil || len(list.Items) != 1 || len(list.Items[0].Endpoints) != 1 {
				return false
			}
			e := list.Items[0].Endpoints[0].Conditions
			return e.Serving != nil && *e.Serving == serving && e.Terminating != nil && *e.Terminating == terminating
		})
	}
	endpoint("serves", true, false)
	if err := s.api.CoreV1().Pods(s.name).Delete(s.Context(), "leaving", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	endpoint("serves while it terminates", true, true)
	s.post(p, 8081, "/fail")
	now := s.wait("leaving", "not to be ready", func(p *corev1.Pod) bool { return condition(p, corev1.PodReady).Status == corev1.ConditionFalse })
	if c := container(now, "main"); now.DeletionTimestamp == nil || c.State.Running == nil || c.RestartCount != 0 {
		s.Errorf("the pod is %s:\n%s", now.Status.Phase, s.describe(now))
	}
	endpoint("does not serve while it terminates", false, true)
	soon := int64(1)
	if err := s.api.CoreV1().Pods(s.name).Delete(s.Context(), "leaving", metav1.DeleteOptions{GracePeriodSeconds: &soon}); err != nil {
		s.Fatal(err)
	}
}

// A FIFO that a container has mounted, by a subPath of its volume, where its termination message should be keeps nobody waiting.
func hostileTerminationMessage(s *testNamespace) {
	fifo := sh("maker", "mkfifo /shared/fifo; echo made")
	c := sh("main", "exit 3")
	p := newPod("fifo", c)
	p.Spec.InitContainers = []corev1.Container{fifo}
	p.Spec.Volumes = []corev1.Volume{{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	p.Spec.InitContainers[0].VolumeMounts = []corev1.VolumeMount{{Name: "shared", MountPath: "/shared"}}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "shared", MountPath: "/dev/termination-log", SubPath: "fifo"}}
	s.create(p)
	p = s.awaitEnd("fifo")
	if end := container(p, "main").State.Terminated; end == nil || end.ExitCode != 3 || end.Message != "" {
		s.Errorf("%+v", end)
	}
	s.delete("fifo")
}
