package node

import (
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (s *testNamespace) node() *corev1.Node {
	s.Helper()
	n, err := s.api.CoreV1().Nodes().Get(s.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func registration(s *testNamespace) {
	n := s.node()
	s.expect(n.Labels, map[string]string{corev1.LabelHostname: nodeName, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH})
	info := n.Status.NodeInfo
	if info.KubeletVersion != "v1.37.1" || !strings.HasPrefix(info.ContainerRuntimeVersion, "containerd://") || info.OperatingSystem != "linux" || info.Architecture != runtime.GOARCH {
		s.Errorf("node info: %+v", info)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || info.BootID != strings.TrimSpace(string(boot)) || info.KernelVersion == "" || info.OSImage == "" {
		s.Errorf("boot ID %q, kernel %q, image %q; the machine says %q, %v", info.BootID, info.KernelVersion, info.OSImage, boot, err)
	}
	var ip, host string
	for _, a := range n.Status.Addresses {
		switch a.Type {
		case corev1.NodeInternalIP:
			ip = a.Address
		case corev1.NodeHostName:
			host = a.Address
		}
	}
	if net.ParseIP(ip) == nil || host != nodeName {
		s.Errorf("addresses: %v", n.Status.Addresses)
	}
	if n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 || n.Spec.PodCIDR == "" || len(n.Spec.Taints) > 0 {
		s.Errorf("port %d, pod CIDR %q, taints %v", n.Status.DaemonEndpoints.KubeletEndpoint.Port, n.Spec.PodCIDR, n.Spec.Taints)
	}
}

// The node's status lists its images within a minute.
func nodeImages(s *testNamespace) {
	s.output(newPod("once", sh("main", "true")))
	s.await("the node to list busybox among its images", func() bool {
		return slices.ContainsFunc(s.node().Status.Images, func(i corev1.ContainerImage) bool {
			return slices.ContainsFunc(i.Names, func(n string) bool { return strings.HasPrefix(n, "docker.io/library/busybox") }) && i.SizeBytes > 0
		})
	})
}

// The node's lease is renewed every ten seconds.
func leases(s *testNamespace) {
	lease := func() *coordinationv1.Lease {
		l, err := s.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(s.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			s.Fatal(err)
		}
		return l
	}
	first := lease()
	if *first.Spec.HolderIdentity != nodeName || *first.Spec.LeaseDurationSeconds != 40 || len(first.OwnerReferences) != 1 || first.OwnerReferences[0].Name != nodeName {
		s.Errorf("lease: %+v, owners %v", first.Spec, first.OwnerReferences)
	}
	if age := time.Since(first.Spec.RenewTime.Time); age > 15*time.Second {
		s.Errorf("the lease was last renewed %v ago", age)
	}
	s.await("the lease to be renewed", func() bool { return lease().Spec.RenewTime.After(first.Spec.RenewTime.Time) })
	if took := time.Since(first.Spec.RenewTime.Time); took > 20*time.Second {
		s.Errorf("the lease was renewed after %v", took)
	}
}

func conditions(s *testNamespace) {
	n := s.node()
	for kind, want := range map[corev1.NodeConditionType][2]string{
		corev1.NodeReady:          {"True", "KubeletReady"},
		corev1.NodeMemoryPressure: {"False", "KubeletHasSufficientMemory"},
		corev1.NodeDiskPressure:   {"False", "KubeletHasNoDiskPressure"},
		corev1.NodePIDPressure:    {"False", "KubeletHasSufficientPID"},
	} {
		if c := nodeCondition(n, kind); string(c.Status) != want[0] || c.Reason != want[1] || c.Message == "" || c.LastHeartbeatTime.IsZero() || c.LastTransitionTime.IsZero() {
			s.Errorf("%s: %+v, want %s", kind, c, want)
		}
	}
}

func capacity(s *testNamespace) {
	n := s.node()
	if got := n.Status.Capacity.Cpu().Value(); got != int64(runtime.NumCPU()) {
		s.Errorf("the node has %d processors, the machine %d", got, runtime.NumCPU())
	}
	if got := n.Status.Capacity.Pods().Value(); got != 110 {
		s.Errorf("the node takes %d pods", got)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods} {
		all, free := n.Status.Capacity[name], n.Status.Allocatable[name]
		if all.Sign() <= 0 || free.Sign() <= 0 || free.Cmp(all) > 0 {
			s.Errorf("of %s %s pods may have %s", all.String(), name, free.String())
		}
	}
	if all, free := n.Status.Capacity.Memory(), n.Status.Allocatable.Memory(); free.Cmp(*all) >= 0 {
		s.Errorf("nothing is kept of %s memory", all)
	}
	// A pod that requests more than there is is rejected, whoever binds it.
	p := newPod("big", sh("main", "true"))
	p.Spec.NodeName = nodeName
	twice := n.Status.Allocatable.Cpu().DeepCopy()
	twice.Add(*n.Status.Allocatable.Cpu())
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: twice}
	s.create(p)
	if p = s.awaitEnd("big"); p.Status.Phase != corev1.PodFailed || p.Status.Reason != "OutOfcpu" {
		s.Errorf("a pod that does not fit: %s, %s: %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
	}
}
