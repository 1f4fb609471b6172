package hollow

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/node/nodeipam"
)

// clientFor returns the client of a component with an identity.
type clientFor func(component, user string, groups ...string) *client.Client

// run runs hollow nodes until the test ends or stop is called. Each has the rights of a node, and their watch those of a scheduler.
func run(t testing.TB, by clientFor, o Options) (nodes *Nodes, stop func()) {
	t.Helper()
	o.Watch = by("hollow", "system:kube-scheduler", "system:authenticated")
	o.Client = func(node string) (*client.Client, error) {
		return by("kubelet", "system:node:"+node, "system:nodes", "system:authenticated"), nil
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	nodes, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := nodes.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return nodes, stop
}

func (n *Nodes) registered() (count int) {
	for _, k := range n.ordered {
		if k.hasLease() {
			count++
		}
	}
	return count
}

func waitRegistered(t testing.TB, n *Nodes) {
	t.Helper()
	controllertest.Eventually(t, func() string {
		if got := n.registered(); got < n.options.Count {
			return fmt.Sprintf("%d of %d nodes are registered", got, n.options.Count)
		}
		return ""
	})
}

func lease(t testing.TB, s *apitest.Server, name string) *coordinationv1.Lease {
	t.Helper()
	l, err := s.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Nodes register with all that a kubelet reports, and renew their leases, in process and over the network.
func TestRegister(t *testing.T) {
	for name, by := range map[string]func(*apitest.Server) clientFor{
		"in process": func(s *apitest.Server) clientFor { return s.InProcess },
		"over HTTPS": func(s *apitest.Server) clientFor { return s.Remote },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := apitest.Start(t)
			nodes, _ := run(t, by(s), Options{Count: 3, Lease: 2 * time.Second, Labels: func(i int) map[string]string {
				return map[string]string{corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%2)}
			}})
			waitRegistered(t, nodes)
			n, err := s.Client().CoreV1().Nodes().Get(t.Context(), "hollow-1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range map[string]string{corev1.LabelHostname: "hollow-1", corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH, corev1.LabelTopologyZone: "zone-1"} {
				if n.Labels[key] != want {
					t.Errorf("label %s is %q", key, n.Labels[key])
				}
			}
			if cpu := n.Status.Allocatable[corev1.ResourceCPU]; cpu.String() != "32" || !isReadyNode(n) || len(n.Status.Conditions) != 4 || n.Status.NodeInfo.MachineID == "" ||
				n.Status.Addresses[0].Address != "172.16.0.2" || n.Status.NodeInfo.KubeletVersion != "v1.37.1" {
				t.Errorf("%+v", n.Status)
			}
			first := lease(t, s, "hollow-1")
			if o := first.OwnerReferences; len(o) != 1 || o[0].UID != n.UID || *first.Spec.HolderIdentity != "hollow-1" || *first.Spec.LeaseDurationSeconds != 2 {
				t.Errorf("%+v", first)
			}
			controllertest.Eventually(t, func() string {
				for _, k := range nodes.ordered {
					if !first.Spec.RenewTime.Before(lease(t, s, k.name).Spec.RenewTime) {
						return "renewed leases"
					}
				}
				return ""
			})
		})
	}
}

func podOn(node, name string, change func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node,
		Containers: []corev1.Container{{Name: "c", Image: "nginx"}}}}
	if change != nil {
		change(pod)
	}
	return pod
}

func create(t testing.TB, s *apitest.Server, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if _, err := s.Client().CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// phases returns the phases of all pods, by name.
func phases(t testing.TB, s *apitest.Server) map[string]string {
	t.Helper()
	list, err := s.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, pod := range list.Items {
		out[pod.Name] = string(pod.Status.Phase)
		if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }) {
			out[pod.Name] += " ready"
		}
	}
	return out
}

func expect(t testing.TB, s *apitest.Server, want map[string]string) {
	t.Helper()
	controllertest.Eventually(t, func() string {
		if got := phases(t, s); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Sprintf("pods %v, there are %v", want, got)
		}
		return ""
	})
}

// Pods run, complete, fail and terminate.
func TestPods(t *testing.T) {
	s := apitest.Start(t)
	nodes, _ := run(t, s.InProcess, Options{Count: 2, RunTime: 300 * time.Millisecond})
	waitRegistered(t, nodes)
	never := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }
	create(t, s,
		podOn("hollow-0", "server", nil),
		podOn("hollow-0", "slow", func(p *corev1.Pod) { p.Annotations = map[string]string{annotationReadyAfter: "400ms"} }),
		podOn("hollow-1", "worker", never),
		podOn("hollow-1", "failing", func(p *corev1.Pod) {
			never(p)
			p.Annotations = map[string]string{annotationExitCode: "7"}
		}),
		podOn("hollow-1", "host", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
		podOn("other", "elsewhere", nil),
		podOn("hollow-1", "kept", func(p *corev1.Pod) { p.Finalizers = []string{"example.com/keep"} }),
	)
	expect(t, s, map[string]string{"server": "Running ready", "slow": "Running ready", "worker": "Succeeded", "failing": "Failed", "host": "Running ready", "elsewhere": "Pending",
		"kept": "Running ready"})
	pods, ctx := s.Client().CoreV1().Pods("default"), t.Context()
	server, err := pods.Get(ctx, "server", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if st := server.Status; !strings.HasPrefix(st.PodIP, "100.64.0.") || st.HostIP != "172.16.0.1" || st.StartTime == nil || st.ObservedGeneration != server.Generation || st.QOSClass != corev1.PodQOSBestEffort {
		t.Errorf("%+v", st)
	}
	host, err := pods.Get(ctx, "host", metav1.GetOptions{})
	if err != nil || host.Status.PodIP != host.Status.HostIP || host.Status.PodIP != "172.16.0.2" {
		t.Errorf("%+v, %v", host.Status, err)
	}
	for name := range phases(t, s) {
		if name == "elsewhere" {
			continue
		}
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](20)}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	expect(t, s, map[string]string{"elsewhere": "Pending", "kept": "Succeeded"})
	if _, err := pods.Patch(ctx, "kept", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, s, map[string]string{"elsewhere": "Pending"})
	controllertest.Eventually(t, func() string {
		for _, k := range nodes.ordered {
			k.mu.Lock()
			known := len(k.pods)
			k.mu.Unlock()
			if known > 0 || k.hosts.taken != [16]uint64{} {
				return fmt.Sprintf("%s to forget its pods", k.name)
			}
		}
		return ""
	})
}

// A pod that takes long to stop has time for it, up to its grace period.
func TestGrace(t *testing.T) {
	s := apitest.Start(t)
	nodes, _ := run(t, s.InProcess, Options{Count: 1, StopDelay: time.Hour})
	waitRegistered(t, nodes)
	create(t, s, podOn("hollow-0", "web", nil))
	expect(t, s, map[string]string{"web": "Running ready"})
	began := time.Now()
	if err := s.Client().CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](2)}); err != nil {
		t.Fatal(err)
	}
	expect(t, s, map[string]string{})
	if took := time.Since(began); took < time.Second || took > 10*time.Second { // times in the API are full seconds
		t.Errorf("it took %v to end", took)
	}
}

// Pods get addresses from their node's pod CIDR, each its own, also after the nodes were restarted.
func TestAddresses(t *testing.T) {
	s := apitest.Start(t)
	controllertest.Run(t, s, func(d controller.Deps) controller.Loop {
		d.Config = controller.Config{AllocateNodeCIDRs: true, ClusterCIDRs: []string{"10.0.0.0/20", "fd00::/60"}}
		return nodeipam.New(d)
	})
	nodes, stop := run(t, s.InProcess, Options{Count: 2})
	waitRegistered(t, nodes)
	controllertest.Eventually(t, func() string {
		for _, k := range nodes.ordered {
			k.mu.Lock()
			n := len(k.cidrs)
			k.mu.Unlock()
			if n != 2 {
				return "ranges for nodes"
			}
		}
		return ""
	})
	want := map[string]string{}
	for round := range 3 {
		for i := range 10 {
			name := fmt.Sprintf("p-%d-%d", round, i)
			create(t, s, podOn(fmt.Sprintf("hollow-%d", i%2), name, nil))
			want[name] = "Running ready"
		}
		expect(t, s, want)
		list, err := s.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		owners := map[string]string{}
		for _, pod := range list.Items {
			for _, ip := range pod.Status.PodIPs {
				if owners[ip.IP] != "" {
					t.Errorf("%s and %s both have %s", owners[ip.IP], pod.Name, ip.IP)
				}
				owners[ip.IP] = pod.Name
			}
			if len(pod.Status.PodIPs) != 2 || !strings.HasPrefix(pod.Status.PodIP, "10.0.") || !strings.HasPrefix(pod.Status.PodIPs[1].IP, "fd00:") {
				t.Errorf("%s has %v", pod.Name, pod.Status.PodIPs)
			}
		}
		if round < 2 { // as a new process would
			stop()
			nodes, stop = run(t, s.InProcess, Options{Count: 2})
			waitRegistered(t, nodes)
		}
	}
}

// A deleted node does not register again until it is restarted.
func TestDeletedNode(t *testing.T) {
	s := apitest.Start(t)
	nodes, stop := run(t, s.InProcess, Options{Count: 1, Lease: time.Second})
	waitRegistered(t, nodes)
	if err := s.Client().CoreV1().Nodes().Delete(t.Context(), "hollow-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		if nodes.registered() > 0 {
			return "the node to notice"
		}
		return ""
	})
	stop()
	nodes, _ = run(t, s.InProcess, Options{Count: 1})
	waitRegistered(t, nodes)
	if _, err := s.Client().CoreV1().Nodes().Get(t.Context(), "hollow-0", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// A share of pods fails, always the same ones.
func TestFailureRate(t *testing.T) {
	l := behaviour{failureRate: 0.25}
	failed := 0
	for i := range 2000 {
		pod := podOn("n", "p", nil)
		pod.UID = types.UID(fmt.Sprintf("uid-%d", i))
		_, code := l.outcome(pod, &pod.Spec.Containers[0], 0)
		if _, again := l.outcome(pod, &pod.Spec.Containers[0], 0); again != code {
			t.Fatal("once so, once so")
		}
		if code != 0 {
			failed++
		}
	}
	if failed < 400 || failed > 600 {
		t.Errorf("%d of 2000 failed", failed)
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{{Count: -1}, {Count: 1}, {FailureRate: 2, Watch: &client.Client{}, Client: func(string) (*client.Client, error) { return nil, nil }}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is fine", o)
		}
	}
}
