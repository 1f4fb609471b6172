package kubelet

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ports is a fake HostPorts, which fails when the test says so.
type ports struct {
	mu       sync.Mutex
	lead     map[types.UID]PodPorts
	restored int
	failures []error
}

func (p *ports) fail() error {
	if len(p.failures) == 0 {
		return nil
	}
	err := p.failures[0]
	p.failures = p.failures[1:]
	return err
}

func (p *ports) Restore(all map[types.UID]PodPorts) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.fail(); err != nil {
		return err
	}
	p.lead = maps.Clone(all)
	p.restored++
	return nil
}

func (p *ports) Set(uid types.UID, to PodPorts) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.restored == 0 {
		return errors.New("they were not restored")
	}
	if _, there := p.lead[uid]; !there { // a pod that has its ports is looked at again at any time
		if err := p.fail(); err != nil {
			return err
		}
	}
	p.lead[uid] = to
	return nil
}

func (p *ports) Remove(uid types.UID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.lead, uid)
	return nil
}

func (p *ports) of(uid types.UID) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	to, there := p.lead[uid]
	if !there {
		return ""
	}
	return fmt.Sprint(to.IPs, to.Ports)
}

// Host ports are forwarded to a pod from when it has an IP until it terminates, across a restart of the kubelet; failures are retried and recorded as Events.
func TestHostPorts(t *testing.T) {
	w := newFixture(t)
	w.stop()
	p := &ports{failures: []error{errors.New("not yet")}}
	w.start(func(o *Options) { o.HostPorts = p })
	const spec = `{containers: [{name: a, image: nginx, ports: [{containerPort: 80, hostPort: 8080}, {containerPort: 81}, {containerPort: 53, hostPort: 5353, hostIP: 127.0.0.1, protocol: UDP}]}]}`
	pod := w.create("web", spec)
	got := w.await("web", ready)
	want := fmt.Sprint([]netip.Addr{netip.MustParseAddr(got.Status.PodIP)}, []HostPort{{Protocol: corev1.ProtocolTCP, HostPort: 8080, ContainerPort: 80},
		{Protocol: corev1.ProtocolUDP, HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: 5353, ContainerPort: 53}})
	if lead := p.of(pod.UID); lead != want {
		t.Errorf("they lead to %s, want %s", lead, want)
	}
	on := w.create("host", "{hostNetwork: true, containers: [{name: a, image: nginx, ports: [{containerPort: 90, hostPort: 90}]}]}")
	w.await("host", ready)
	if lead := p.of(on.UID); lead != "" {
		t.Errorf("a pod on the host's network has %s", lead)
	}
	w.stop()
	q := &ports{}
	w.start(func(o *Options) { o.HostPorts = q })
	w.eventually(func() string {
		if lead := q.of(pod.UID); lead != want {
			return "after a restart they lead to " + lead
		}
		return ""
	})
	q.mu.Lock()
	if q.restored != 1 || !slices.Equal(slices.Collect(maps.Keys(q.lead)), []types.UID{pod.UID}) {
		t.Errorf("restored %d times: %v", q.restored, q.lead)
	}
	q.failures = []error{errors.New("no room")}
	q.mu.Unlock()
	again := w.create("other", "{containers: [{name: a, image: nginx, ports: [{containerPort: 80, hostPort: 8081}]}]}")
	w.awaitEvent("other", "Warning FailedCreatePodSandBox Failed to open host ports: no room")
	w.await("other", ready)
	if q.of(again.UID) == "" {
		t.Error("it was not tried again")
	}
	w.delete("web", 0)
	w.awaitGone("web")
	w.eventually(func() string { return q.of(pod.UID) })
}

// A pod cannot have a reserved host port; at another address, with another protocol or on the host network it can. A pod that had such a port before it was
// reserved loses it.
func TestReservedPorts(t *testing.T) {
	w := newFixture(t)
	w.stop()
	before := &ports{}
	w.start(func(o *Options) { o.HostPorts = before })
	spec := func(port string) string {
		return "{containers: [{name: a, image: nginx, ports: [{containerPort: 80, hostPort: 8080}, {containerPort: 81, " + port + "}]}]}"
	}
	old := w.create("old", spec("hostPort: 10250"))
	w.await("old", ready)
	if lead := before.of(old.UID); lead == "" {
		t.Fatal("the pod has no ports")
	}
	w.stop()
	p := &ports{}
	w.start(func(o *Options) {
		o.HostPorts = p
		o.ReservedPorts = []ReservedPort{
			{Protocol: corev1.ProtocolTCP, Port: 10250, Use: "the kubelet"},
			{Protocol: corev1.ProtocolTCP, IP: netip.MustParseAddr("127.0.0.1"), Port: 6500, Use: "the image registry"},
			{Protocol: corev1.ProtocolUDP, IP: netip.MustParseAddr("0.0.0.0"), Port: 8472, Use: "the overlay network"},
		}
	})
	w.eventually(func() string {
		if got, want := p.of(old.UID), "8080"; !strings.Contains(got, want) || strings.Contains(got, "10250") {
			return "the ports of the pod from before are " + got
		}
		return ""
	})
	w.delete("old", 0)
	w.awaitGone("old")
	free := 20000 // a port that no other pod has
	for name, rejected := range map[string][2]string{
		"kubelet":   {"hostPort: 10250, hostIP: 192.0.2.1", "host port 10250/TCP belongs to the kubelet of this node"},
		"registry":  {"hostPort: 6500", "host port 6500/TCP belongs to the image registry of this node"},
		"loopback":  {"hostPort: 6500, hostIP: 127.0.0.1", "host port 6500/TCP belongs to the image registry of this node"},
		"anyhow":    {"hostPort: 6500, hostIP: 0.0.0.0", "host port 6500/TCP belongs to the image registry of this node"},
		"overlay":   {"hostPort: 8472, protocol: UDP, hostIP: 192.0.2.1", "host port 8472/UDP belongs to the overlay network of this node"},
		"protocols": {"hostPort: 8472, hostIP: 192.0.2.1", ""},
		"elsewhere": {"hostPort: 6500, hostIP: 192.0.2.1", ""},
	} {
		free++
		pod := w.create(name, strings.Replace(spec(rejected[0]), "hostPort: 8080", fmt.Sprint("hostPort: ", free), 1))
		if rejected[1] == "" {
			w.await(name, ready)
			if lead := p.of(pod.UID); lead == "" {
				t.Errorf("%s has no ports", name)
			}
		} else {
			got := w.await(name, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
			if got.Status.Reason != "NodePorts" || got.Status.Message != "Pod was rejected: Predicate NodePorts failed: "+rejected[1] {
				t.Errorf("%s: %s: %s", name, got.Status.Reason, got.Status.Message)
			}
			w.awaitEvent(name, "Warning NodePorts Predicate NodePorts failed: "+rejected[1])
			if lead := p.of(pod.UID); lead != "" {
				t.Errorf("%s has ports %s", name, lead)
			}
		}
		w.delete(name, 0)
		w.awaitGone(name)
	}
	w.create("host", "{hostNetwork: true, containers: [{name: a, image: nginx, ports: [{containerPort: 10250, hostPort: 10250}]}]}")
	w.await("host", ready)
}
