package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/kubelet/status"
)

// hostPorts guards the calls to HostPorts.
type hostPorts struct {
	mu       sync.Mutex
	restored chan struct{} // closed when the ports of pods that ran before this process were restored
}

// hostPortsOf returns the host ports of a pod's spec; none for a pod on the host network.
func hostPortsOf(pod *corev1.Pod) (out []HostPort) {
	if pod.Spec.HostNetwork {
		return nil
	}
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.HostPort <= 0 {
				continue
			}
			ip, _ := netip.ParseAddr(p.HostIP) // not valid if empty, which is any address
			out = append(out, HostPort{Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), HostIP: ip, HostPort: uint16(p.HostPort), ContainerPort: uint16(p.ContainerPort)})
		}
	}
	return out
}

// reserved returns the first of the reserved ports that a host port conflicts with, nil if none does.
func (k *Kubelet) reserved(p HostPort) *ReservedPort {
	anywhere := func(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() }
	for i := range k.options.ReservedPorts {
		r := &k.options.ReservedPorts[i]
		if r.Port == p.HostPort && r.Protocol == p.Protocol && (anywhere(r.IP) || anywhere(p.HostIP) || r.IP.Unmap() == p.HostIP.Unmap()) {
			return r
		}
	}
	return nil
}

// rejectHostPorts rejects a pod with a reserved host port: packets would no longer reach the program that listens there.
func (k *Kubelet) rejectHostPorts(pod *corev1.Pod) *rejection {
	for _, p := range hostPortsOf(pod) {
		if r := k.reserved(p); r != nil {
			return &rejection{"NodePorts", fmt.Sprintf("Predicate NodePorts failed: host port %d/%s belongs to %s of this node", p.HostPort, p.Protocol, r.Use)}
		}
	}
	return nil
}

// allowedHostPortsOf returns the host ports of a pod without reserved ones, which pods that were admitted before may have.
func (k *Kubelet) allowedHostPortsOf(pod *corev1.Pod) []HostPort {
	return slices.DeleteFunc(hostPortsOf(pod), func(p HostPort) bool { return k.reserved(p) != nil })
}

// parseAddrs parses IPs, and leaves out those that are not valid.
func parseAddrs(ips []string) (out []netip.Addr) {
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// restorePorts sets up the host ports of pods that run already, and retries until that succeeds. No host port is set or removed before.
func (k *Kubelet) restorePorts(ctx context.Context) {
	if k.options.HostPorts == nil {
		return
	}
	for retry := minRetry; ctx.Err() == nil; retry = min(2*retry, maxRetry) {
		all, err := k.currentPorts(ctx)
		if err == nil {
			k.ports.mu.Lock()
			err = k.options.HostPorts.Restore(all)
			k.ports.mu.Unlock()
		}
		if err == nil {
			close(k.ports.restored)
			return
		}
		k.log.Warn("failed to restore host ports; retrying", "error", err)
		sleep(ctx, retry)
	}
}

// currentPorts returns the host ports of the pods that have IPs.
func (k *Kubelet) currentPorts(ctx context.Context) (map[types.UID]PodPorts, error) {
	all := map[types.UID]PodPorts{}
	pods, err := k.podLister.List(everything)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		ports := k.allowedHostPortsOf(pod)
		if len(ports) == 0 || status.IsTerminal(pod.Status.Phase) {
			continue
		}
		runtime, err := k.observer.Observe(ctx, pod.UID)
		if err != nil {
			return nil, err
		}
		if ips := parseAddrs(runtime.IPs()); len(ips) > 0 {
			all[pod.UID] = PodPorts{IPs: ips, Ports: ports}
		}
	}
	return all, nil
}

// setPorts sets up the pod's host ports, if it has any and they are not set up yet.
func (w *worker) setPorts(pod *corev1.Pod, podIPs []string) error {
	ports := w.k.allowedHostPortsOf(pod)
	if w.hostPortsSet || w.k.options.HostPorts == nil || len(ports) == 0 || len(podIPs) == 0 {
		return nil
	}
	select {
	case <-w.k.ports.restored:
	case <-w.k.runCtx.Done():
		return errInterrupted
	case <-time.After(maxRetry):
		return errInterrupted
	}
	w.k.ports.mu.Lock()
	defer w.k.ports.mu.Unlock()
	if err := w.k.options.HostPorts.Set(pod.UID, PodPorts{IPs: parseAddrs(podIPs), Ports: ports}); err != nil {
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to open host ports: %v", err)
		return err
	}
	w.hostPortsSet = true
	return nil
}

// removePorts removes the pod's host ports.
func (w *worker) removePorts() error {
	w.hostPortsSet = false
	if w.k.options.HostPorts == nil {
		return nil
	}
	select {
	case <-w.k.ports.restored:
	default:
		return nil // they will not be restored: the pod has terminated
	}
	w.k.ports.mu.Lock()
	defer w.k.ports.mu.Unlock()
	return w.k.options.HostPorts.Remove(w.uid)
}
