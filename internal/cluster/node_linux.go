package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/bundle"
	"skiff/internal/cluster/process"
	"skiff/internal/images"
	"skiff/internal/images/access"
	"skiff/internal/journey"
	"skiff/internal/kubelet"
	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/server"
	"skiff/internal/kubelet/volume"
	"skiff/internal/network/podnet"
)

// node is the node on this machine: a container runtime, the pods' network and a kubelet. It is the same in `skiff server` and in `skiff agent`.
type node struct {
	o       nodeOptions
	place   place
	name    string
	ips     []string
	socket  string // where pods is asked
	store   *images.Store
	serving *access.Registry
	pods    *podnet.Server // attaches them to the network; nil if another runtime is used
	// runtime is there, or failed is, once started is closed.
	started chan struct{}
	runtime *bundle.Runtime // nil if another is used
	failed  error
}

// beginNode starts what does not need the API, beside it.
func beginNode(ctx context.Context, o nodeOptions) (*node, error) {
	n := &node{o: o, place: placeOf(o.DataDir), name: o.Config.Name, ips: []string{o.Config.IP}, started: make(chan struct{})}
	var err error
	if n.store, err = images.Open(n.place.images); err != nil {
		return nil, fmt.Errorf("the image registry: %w", err)
	}
	if o.Config.RuntimeEndpoint == "" {
		if n.socket, err = bundle.NetworkSocket(o.DataDir); err != nil {
			return nil, err
		}
		if n.pods, err = podnet.Serve(n.podNetwork(), o.Log); err != nil {
			return nil, fmt.Errorf("the pods' network: %w", err)
		}
	}
	if n.serving, err = access.Serve(access.Options{Dir: n.place.registry, Address: o.Config.RegistryAddress, NodeIPs: n.ips, Store: n.store, Log: o.Log}); err != nil {
		if n.pods != nil {
			n.pods.Close()
		}
		return nil, fmt.Errorf("the image registry: %w", err)
	}
	o.Go(func() {
		defer close(n.started)
		if n.pods != nil {
			n.runtime, n.failed = bundle.Start(ctx, bundle.Options{DataDir: o.DataDir, Images: n.store, Registry: n.serving.Access(), CNIConf: n.place.network, Log: o.Log,
				Sweep: n.pods.Sweep})
		}
	})
	return n, nil
}

// podNetwork is how this node's pods are connected, but for what only the cluster knows.
func (n *node) podNetwork() podnet.Config {
	return podnet.Config{Dir: n.place.network, State: n.place.addresses, Socket: n.socket}
}

// end leaves containers running.
func (n *node) end() {
	if n == nil {
		return
	}
	<-n.started
	if n.runtime != nil {
		n.runtime.Detach()
	}
	if n.pods != nil {
		n.pods.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := n.serving.Close(ctx); err != nil {
		n.o.Log.Warn("the image registry did not end in time", "error", err)
	}
}

// start runs the kubelet and the network until ctx ends.
func (n *node) start(ctx context.Context, a nodeAccess) error {
	<-n.started
	if n.failed != nil {
		return n.failed
	}
	endpoint, seccomp := n.o.Config.RuntimeEndpoint, ""
	if n.runtime != nil {
		endpoint, seccomp = n.runtime.Endpoint(), n.runtime.Paths().Seccomp
	}
	runtime, err := cri.Connect(endpoint)
	if err != nil {
		return fmt.Errorf("the container runtime at %s: %w", endpoint, err)
	}
	context.AfterFunc(ctx, func() { runtime.Close() })
	if err := n.prepareNetwork(a); err != nil {
		return err
	}
	groups, err := cgroup.New(cgroup.Options{Root: n.place.cgroup, PodPidsLimit: podPidsLimit, Log: n.o.Log})
	if err != nil {
		return err
	}
	reserved, err := n.reservedPorts(a)
	if err != nil {
		return err
	}
	c := a.Client
	k, err := kubelet.New(kubelet.Options{
		Client: c, NodeName: n.name, NodeIPs: n.ips, Labels: n.o.Config.Labels, Taints: n.o.Config.Taints, Port: int32(n.o.Config.Port), MaxPods: n.o.Config.MaxPods,
		Runtime: runtime, SandboxSeccomp: seccomp, Cgroups: groups, HostPorts: &hostPorts{}, ReservedPorts: reserved,
		RootDir: n.place.kubelet, LogDir: n.place.podLogs, ContainerLogDir: n.place.containerLogs,
		ClusterDNS: dnsAddress(a.ServiceCIDRs), ClusterDomain: a.Domain, Log: n.o.Log,
		Stage: func(stage kubelet.Stage) {
			span := c.Begin(stage.Pod, stage.Name)
			span.EndAt(stage.Start, stage.End, stage.Err, containerAttribute(stage.Container)...)
			if stage.Name == kubelet.StageSandbox && stage.Err == nil && !stage.Pod.Spec.HostNetwork {
				n.o.Go(func() {
					if start, end, ok := cniTimes(cniResults, stage.Sandbox, stage.Start, stage.End); ok {
						span.Record(journey.CNI, start, end, nil)
					}
				})
			}
		},
	})
	if err != nil {
		return err
	}
	network, err := n.startNetwork(ctx, a)
	if err != nil {
		return err
	}
	if err := n.serveKubelet(ctx, a, k, runtime, groups, network); err != nil {
		return err
	}
	n.o.Go(func() {
		if err := k.Run(ctx); err != nil && ctx.Err() == nil {
			n.o.Fail(fmt.Errorf("the kubelet: %w", err))
		}
	})
	return nil
}

// podPidsLimit keeps a fork bomb in a pod from taking all processes of the node.
const podPidsLimit = 4096

// serveKubelet answers on the kubelet's port.
func (n *node) serveKubelet(ctx context.Context, a nodeAccess, k *kubelet.Kubelet, runtime *cri.Client, groups *cgroup.Manager,
	metrics prometheus.Gatherers) error {
	measured, err := n.stats(k, runtime, groups)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(n.o.Config.Port)))
	if err != nil {
		return fmt.Errorf("the kubelet cannot listen: %w", err)
	}
	more := prometheus.NewRegistry()
	server := server.New(server.Options{
		NodeName: n.name, API: a.Client.Kubernetes(), Pods: k, Runtime: runtime, Log: n.o.Log, LogDir: filepath.Dir(n.place.podLogs),
		ClientCAs: a.ClientCAs,
		TLS:       a.Serving(&tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}),
		Stats:     measured,
		Config:    func() any { return n.configuration(a) },
		Healthy:   k.Healthy,
		Metrics:   append(metrics, k.Metrics(), more),
		Probes:    k.ProbeMetrics(),
	})
	more.MustRegister(server, runtime, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.o.Go(func() {
		if err := server.Serve(ctx, listener); err != nil && ctx.Err() == nil {
			n.o.Fail(fmt.Errorf("the kubelet's server: %w", err))
		}
	})
	return nil
}

func parseRanges(cidrs []string) (ranges []netip.Prefix, err error) {
	for _, cidr := range cidrs {
		r, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("a range of pod addresses: %w", err)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// hostPorts are podnet's, as the kubelet has them.
type hostPorts struct{ ports podnet.HostPorts }

func (h *hostPorts) Restore(all map[types.UID]kubelet.PodPorts) error {
	restored := map[string]podnet.Ports{}
	for uid, p := range all {
		restored[string(uid)] = podnet.Ports{PodIPs: p.IPs, Mappings: mappings(p.Ports)}
	}
	return h.ports.Restore(restored)
}

func (h *hostPorts) Set(uid types.UID, p kubelet.PodPorts) error {
	return h.ports.Set(string(uid), p.IPs, mappings(p.Ports))
}

func (h *hostPorts) Remove(uid types.UID) error { return h.ports.Remove(string(uid)) }

func mappings(ports []kubelet.HostPort) (out []podnet.Mapping) {
	for _, p := range ports {
		out = append(out, podnet.Mapping{Protocol: string(p.Protocol), HostIP: p.HostIP, HostPort: p.HostPort, ContainerPort: p.ContainerPort})
	}
	return out
}

// CleanNode ends the pods of a cluster that does not run, and removes all that they had on this machine but data.
func CleanNode(ctx context.Context, dataDir string) error {
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return err
	}
	if err := process.CheckUnused(dataDir); err != nil {
		return err
	}
	p := placeOf(dataDir)
	if _, err := os.Stat(p.kubelet); errors.Is(err, os.ErrNotExist) {
		return nil // there was never a node
	}
	failed := errors.Join(bundle.Clean(ctx, dataDir), podnet.Config{Dir: p.network, State: p.addresses}.Clean(), cleanNetwork())
	groups, err := cgroup.New(cgroup.Options{Root: p.cgroup})
	if err != nil {
		return errors.Join(failed, err)
	}
	volumes := volume.New(volume.Options{Root: filepath.Join(p.kubelet, "pods")})
	left, err := volumes.Left()
	failed = errors.Join(failed, groups.RemoveAll(), err)
	for _, uid := range left {
		failed = errors.Join(failed, volumes.TearDown(ctx, uid))
	}
	removeGroups(p.cgroup)
	return failed
}

// removeGroups removes control groups in which nothing is left, and those above that only they were in.
func removeGroups(group string) {
	for group != "/" {
		dirs, _ := filepath.Glob("/sys/fs/cgroup/*" + group) // the pattern is well formed
		for _, dir := range append(dirs, "/sys/fs/cgroup"+group) {
			_ = os.Remove(dir) // it is not there, or another cluster's are below
		}
		group = filepath.Dir(group)
	}
}
