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

// hostPorts are the ports of the node that lead to pods.
type hostPorts struct {
	mu       sync.Mutex
	restored chan struct{} // closed when those of pods that ran before this process are known
}

// portsOf are the ports of the node that a pod wants to lead to it.
func portsOf(pod *corev1.Pod) (out []HostPort) {
	if pod.Spec.HostNetwork {
		return nil
	}
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.HostPort <= 0 {
				continue
			}
			ip, _ := netip.ParseAddr(p.HostIP) // none is any
			out = append(out, HostPort{Protocol: cmp.Or(p.Protocol, corev1.ProtocolTCP), HostIP: ip, HostPort: uint16(p.HostPort), ContainerPort: uint16(p.ContainerPort)})
		}
	}
	return out
}

// reserved returns the first of the node's own ports that a host port would take, if any.
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

// refuseHostPorts rejects a pod whose host port is one of the node's own: its packets would no longer reach what listens there.
func (k *Kubelet) refuseHostPorts(pod *corev1.Pod) *refusal {
	for _, p := range portsOf(pod) {
		if r := k.reserved(p); r != nil {
			return &refusal{"NodePorts", fmt.Sprintf("Predicate NodePorts failed: host port %d/%s belongs to %s of this node", p.HostPort, p.Protocol, r.Use)}
		}
	}
	return nil
}

// allowedPortsOf is portsOf without the node's own ports, which pods that run from before may have been given.
func (k *Kubelet) allowedPortsOf(pod *corev1.Pod) []HostPort {
	return slices.DeleteFunc(portsOf(pod), func(p HostPort) bool { return k.reserved(p) != nil })
}

func addrs(ips []string) (out []netip.Addr) {
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// restorePorts has the ports of pods that run already lead to them. No port of another pod is touched before.
func (k *Kubelet) restorePorts(ctx context.Context) {
	if k.options.HostPorts == nil {
		return
	}
	for retry := firstRetry; ctx.Err() == nil; retry = min(2*retry, lastRetry) {
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
		k.log.Warn("host ports could not be restored; trying again", "error", err)
		sleep(ctx, retry)
	}
}

func (k *Kubelet) currentPorts(ctx context.Context) (map[types.UID]PodPorts, error) {
	all := map[types.UID]PodPorts{}
	pods, err := k.podLister.List(everything)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		ports := k.allowedPortsOf(pod)
		if len(ports) == 0 || status.Ended(pod.Status.Phase) {
			continue
		}
		runtime, err := k.observer.Look(ctx, pod.UID)
		if err != nil {
			return nil, err
		}
		if ips := addrs(runtime.IPs()); len(ips) > 0 {
			all[pod.UID] = PodPorts{IPs: ips, Ports: ports}
		}
	}
	return all, nil
}

// setPorts has the node's ports lead to the pod, if it wants any.
func (w *worker) setPorts(pod *corev1.Pod, ips []string) error {
	ports := w.k.allowedPortsOf(pod)
	if w.ported || w.k.options.HostPorts == nil || len(ports) == 0 || len(ips) == 0 {
		return nil
	}
	select {
	case <-w.k.ports.restored:
	case <-w.k.running.Done():
		return errInterrupted
	case <-time.After(lastRetry):
		return errInterrupted
	}
	w.k.ports.mu.Lock()
	defer w.k.ports.mu.Unlock()
	if err := w.k.options.HostPorts.Set(pod.UID, PodPorts{IPs: addrs(ips), Ports: ports}); err != nil {
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to open host ports: %v", err)
		return err
	}
	w.ported = true
	return nil
}

// removePorts has no port of the node lead to the pod.
func (w *worker) removePorts() error {
	w.ported = false
	if w.k.options.HostPorts == nil {
		return nil
	}
	select {
	case <-w.k.ports.restored:
	default:
		return nil // they will not be restored: the pod has ended
	}
	w.k.ports.mu.Lock()
	defer w.k.ports.mu.Unlock()
	return w.k.options.HostPorts.Remove(w.uid)
}
