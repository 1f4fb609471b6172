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

	csispec "github.com/container-storage-interface/spec/lib/go/csi"
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
	"skiff/internal/kubelet/csi"
	"skiff/internal/kubelet/disk"
	"skiff/internal/kubelet/server"
	"skiff/internal/kubelet/volume"
	"skiff/internal/localvolume"
	"skiff/internal/network/podnet"
)

// node is the node on this machine: a container runtime, the pods' network and a kubelet. It is the same in `skiff server` and in `skiff agent`.
type node struct {
	options   nodeOptions
	paths     nodePaths
	name      string
	nodeIPs   []string
	cniSocket string // the socket on which podNetwork serves the CNI plugin
	images    *images.Store
	registry  *access.Registry
	// podNetwork attaches pods to the network; nil with a container runtime that is not the bundled one.
	podNetwork *podnet.Server

	runtimeStarted chan struct{}   // closed once runtime or runtimeErr is set
	runtime        *bundle.Runtime // nil with a container runtime that is not the bundled one
	runtimeErr     error
}

// standardKubelet is the kubelet's root directory on most machines. A CSI driver in a pod has the volumes of this path only.
const standardKubelet = "/var/lib/kubelet"

// kubeletRoot returns the standard path of the kubelet's root directory where it is bound to the one in the data directory, as in local nodes, so that drivers are
// told paths that they have too; otherwise the one in the data directory.
func kubeletRoot(own, standard string) string {
	a, err := os.Lstat(own)
	if err != nil {
		return own
	}
	if b, err := os.Lstat(standard); err != nil || !os.SameFile(a, b) { // a symbolic link is another file: the mount table would have the path that it leads to
		return own
	}
	return standard
}

// startRuntime starts what a node runs without the API: the image registry, the pods' network and the container runtime, which starts in the background while
// the API server does.
func startRuntime(ctx context.Context, o nodeOptions) (*node, error) {
	n := &node{options: o, paths: pathsOf(o.DataDir), name: o.Config.Name, nodeIPs: []string{o.Config.IP}, runtimeStarted: make(chan struct{})}
	n.paths.kubelet = kubeletRoot(n.paths.kubelet, standardKubelet)
	var err error
	if n.images, err = images.Open(n.paths.images); err != nil {
		return nil, fmt.Errorf("failed to start the image registry: %w", err)
	}
	if o.Config.RuntimeEndpoint == "" {
		if n.cniSocket, err = bundle.NetworkSocket(o.DataDir); err != nil {
			return nil, err
		}
		if n.podNetwork, err = podnet.Serve(n.podNetworkConfig(), o.Log); err != nil {
			return nil, fmt.Errorf("failed to start the pods' network: %w", err)
		}
	}
	if n.registry, err = access.Serve(access.Options{Dir: n.paths.registry, Address: o.Config.RegistryAddress, NodeIPs: n.nodeIPs, Store: n.images, Log: o.Log}); err != nil {
		if n.podNetwork != nil {
			n.podNetwork.Close()
		}
		return nil, fmt.Errorf("failed to start the image registry: %w", err)
	}
	o.Go(func() {
		defer close(n.runtimeStarted)
		if n.podNetwork != nil {
			n.runtime, n.runtimeErr = bundle.Start(ctx, bundle.Options{DataDir: o.DataDir, Images: n.images, Registry: n.registry.Access(), CNIConf: n.paths.cniConfig, Log: o.Log,
				Sweep: n.podNetwork.Sweep})
		}
	})
	return n, nil
}

// podNetworkConfig returns the configuration of the pods' network, but for what the Node object says.
func (n *node) podNetworkConfig() podnet.Config {
	return podnet.Config{Dir: n.paths.cniConfig, State: n.paths.cniState, Socket: n.cniSocket}
}

// stop stops the node. Its containers keep running.
func (n *node) stop() {
	if n == nil {
		return
	}
	<-n.runtimeStarted
	if n.runtime != nil {
		n.runtime.Detach()
	}
	if n.podNetwork != nil {
		n.podNetwork.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := n.registry.Close(ctx); err != nil {
		n.options.Log.Warn("failed to stop the image registry in time", "error", err)
	}
}

// start starts the kubelet and the network, which run until ctx ends.
func (n *node) start(ctx context.Context, a nodeAccess) error {
	<-n.runtimeStarted
	if n.runtimeErr != nil {
		return n.runtimeErr
	}
	endpoint, seccomp := n.options.Config.RuntimeEndpoint, ""
	if n.runtime != nil {
		endpoint, seccomp = n.runtime.Endpoint(), n.runtime.Paths().Seccomp
	}
	runtime, err := cri.Connect(endpoint)
	if err != nil {
		return fmt.Errorf("failed to connect to the container runtime at %s: %w", endpoint, err)
	}
	context.AfterFunc(ctx, func() { runtime.Close() })
	if err := n.prepareNetwork(a); err != nil {
		return err
	}
	groups, err := cgroup.New(cgroup.Options{Root: n.paths.cgroup, PodPidsLimit: podPidsLimit, Log: n.options.Log})
	if err != nil {
		return err
	}
	reserved, err := n.reservedPorts(a)
	if err != nil {
		return err
	}
	volumes, err := disk.New(disk.Options{Dir: n.paths.volumes, NodeName: n.name, Version: Version})
	if err != nil {
		return fmt.Errorf("failed to prepare the directory of local volumes: %w", err)
	}
	c := a.Client
	k, err := kubelet.New(kubelet.Options{
		Client: c, NodeName: n.name, NodeIPs: n.nodeIPs, Labels: n.options.Config.Labels, Taints: n.options.Config.Taints, Port: int32(n.options.Config.Port), MaxPods: n.options.Config.MaxPods,
		Runtime: runtime, SandboxSeccomp: seccomp, Cgroups: groups, HostPorts: &hostPorts{}, ReservedPorts: reserved, CSIDrivers: map[string]csispec.NodeServer{disk.Name: volumes},
		RootDir: n.paths.kubelet, LogDir: n.paths.podLogs, ContainerLogDir: n.paths.containerLogs,
		ClusterDNS: dnsAddress(a.ServiceCIDRs), ClusterDomain: a.Domain, Log: n.options.Log,
		Stage: func(stage kubelet.Stage) {
			span := c.Begin(stage.Pod, stage.Name)
			span.EndAt(stage.Start, stage.End, stage.Err, containerAttribute(stage.Container)...)
			if stage.Name == kubelet.StageSandbox && stage.Err == nil && !stage.Pod.Spec.HostNetwork {
				n.options.Go(func() {
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
	if err := n.serveKubelet(ctx, a, k, runtime, groups, volumes, network); err != nil {
		return err
	}
	n.options.Go(func() {
		if err := k.Run(ctx); err != nil && ctx.Err() == nil {
			n.options.Fail(fmt.Errorf("the kubelet failed: %w", err))
		}
	})
	return nil
}

// podPidsLimit keeps a fork bomb in a pod from taking all processes of the node.
const podPidsLimit = 4096

// serveKubelet serves the kubelet's API on its port until ctx ends.
func (n *node) serveKubelet(ctx context.Context, a nodeAccess, k *kubelet.Kubelet, runtime *cri.Client, groups *cgroup.Manager,
	volumes localvolume.Volumes, metrics prometheus.Gatherers) error {
	stats, err := n.stats(k, runtime, groups)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(n.options.Config.Port)))
	if err != nil {
		return fmt.Errorf("the kubelet failed to listen on its port (--kubelet-port gives another): %w", err)
	}
	serverMetrics := prometheus.NewRegistry()
	server := server.New(server.Options{
		NodeName: n.name, API: a.Client.Kubernetes(), Pods: k, Runtime: runtime, Log: n.options.Log, LogDir: filepath.Dir(n.paths.podLogs),
		ClientCAs:    a.ClientCAs,
		TLS:          a.Serving(&tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}),
		Stats:        stats,
		LocalVolumes: localvolume.NewHandler(volumes),
		Config:       func() any { return n.configuration(a) },
		Healthy:      k.Healthy,
		Metrics:      append(metrics, k.Metrics(), serverMetrics),
		Probes:       k.ProbeMetrics(),
	})
	serverMetrics.MustRegister(server, runtime, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.options.Go(func() {
		if err := server.Serve(ctx, listener); err != nil && ctx.Err() == nil {
			n.options.Fail(fmt.Errorf("the kubelet's server failed: %w", err))
		}
	})
	return nil
}

func parseRanges(cidrs []string) (ranges []netip.Prefix, err error) {
	for _, cidr := range cidrs {
		r, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("failed to parse a range of pod addresses: %w", err)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// hostPorts adapts podnet's host ports to the kubelet's interface.
type hostPorts struct{ ports podnet.HostPorts }

// Restore makes the host ports those of the given pods, and of no others.
func (h *hostPorts) Restore(all map[types.UID]kubelet.PodPorts) error {
	restored := map[string]podnet.Ports{}
	for uid, p := range all {
		restored[string(uid)] = podnet.Ports{PodIPs: p.IPs, Mappings: mappings(p.Ports)}
	}
	return h.ports.Restore(restored)
}

// Set sets the host ports of a pod.
func (h *hostPorts) Set(uid types.UID, p kubelet.PodPorts) error {
	return h.ports.Set(string(uid), p.IPs, mappings(p.Ports))
}

// Remove removes the host ports of a pod.
func (h *hostPorts) Remove(uid types.UID) error { return h.ports.Remove(string(uid)) }

func mappings(ports []kubelet.HostPort) (out []podnet.Mapping) {
	for _, p := range ports {
		out = append(out, podnet.Mapping{Protocol: string(p.Protocol), HostIP: p.HostIP, HostPort: p.HostPort, ContainerPort: p.ContainerPort})
	}
	return out
}

// CleanNode removes the pods of a cluster that does not run, and everything they have on this machine but data: containers, networks, cgroups and mounts.
func CleanNode(ctx context.Context, dataDir string) error {
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return err
	}
	if err := process.CheckUnused(dataDir); err != nil {
		return err
	}
	p := pathsOf(dataDir)
	if _, err := os.Stat(p.kubelet); errors.Is(err, os.ErrNotExist) {
		return nil // there was never a node
	}
	failed := errors.Join(bundle.Clean(ctx, dataDir), podnet.Config{Dir: p.cniConfig, State: p.cniState}.Clean(), cleanNetwork())
	groups, err := cgroup.New(cgroup.Options{Root: p.cgroup})
	if err != nil {
		return errors.Join(failed, err)
	}
	volumes := volume.New(volume.Options{Root: filepath.Join(p.kubelet, "pods")})
	podUIDs, err := volumes.Left()
	failed = errors.Join(failed, groups.RemoveAll(), err)
	for _, uid := range podUIDs {
		failed = errors.Join(failed, volumes.TearDown(ctx, uid))
	}
	failed = errors.Join(failed, csi.Clean(ctx, p.kubelet), DetachVolumes(dataDir))
	removeCgroups(p.cgroup)
	return failed
}

// DetachVolumes unmounts and detaches the local volumes of a node that does not run.
func DetachVolumes(dataDir string) error { return disk.Clean(pathsOf(dataDir).volumes) }

// removeCgroups removes a cgroup in which nothing is left, and its parents if nothing else is in them.
func removeCgroups(group string) {
	for group != "/" {
		dirs, _ := filepath.Glob("/sys/fs/cgroup/*" + group) // the pattern is well formed
		for _, dir := range append(dirs, "/sys/fs/cgroup"+group) {
			_ = os.Remove(dir) // fails if it does not exist, or has cgroups of another cluster
		}
		group = filepath.Dir(group)
	}
}
