package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/bundle"
	"skiff/internal/client"
	"skiff/internal/cluster/pki"
	"skiff/internal/images"
	"skiff/internal/journey"
	"skiff/internal/kubelet"
	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/server"
	"skiff/internal/kubelet/volume"
	"skiff/internal/network/podnet"
)

// node is the node on this machine: a container runtime, the pods' network and a kubelet, in the server's process.
type node struct {
	s       *Server
	place   place
	name    string
	ips     []string
	store   *images.Store
	serving *images.Server
	// runtime is there, or failed is, once started is closed.
	started chan struct{}
	runtime *bundle.Runtime // nil if another is used
	failed  error
}

// beginNode starts what does not need the API, beside it.
func (s *Server) beginNode(ctx context.Context) (*node, error) {
	c := s.config
	n := &node{s: s, place: placeOf(c.DataDir), name: c.Node.Name, ips: []string{c.Node.IP}, started: make(chan struct{})}
	var err error
	if n.store, err = images.Open(n.place.images); err != nil {
		return nil, fmt.Errorf("the image registry: %w", err)
	}
	if n.serving, err = images.Serve(c.Node.RegistryAddress, n.store, c.Log); err != nil {
		return nil, fmt.Errorf("the image registry: %w", err)
	}
	s.wg.Go(func() {
		defer close(n.started)
		if c.Node.RuntimeEndpoint == "" {
			n.runtime, n.failed = bundle.Start(ctx, bundle.Options{DataDir: c.DataDir, Images: n.store, Registry: n.serving.Address(), CNIConf: n.place.network, Log: c.Log,
				Sweep: podnet.Config{Dir: n.place.network, State: n.place.addresses}.Sweep})
		}
	})
	return n, nil
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
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := n.serving.Close(ctx); err != nil {
		n.s.config.Log.Warn("the image registry did not end in time", "error", err)
	}
}

// startNode runs the kubelet until ctx ends.
func (s *Server) startNode(ctx context.Context) error {
	n := s.node
	if n == nil {
		return nil
	}
	<-n.started
	if n.failed != nil {
		return n.failed
	}
	endpoint, seccomp := s.config.Node.RuntimeEndpoint, ""
	if n.runtime != nil {
		endpoint, seccomp = n.runtime.Endpoint(), n.runtime.Paths().Seccomp
	}
	runtime, err := cri.Connect(endpoint)
	if err != nil {
		return fmt.Errorf("the container runtime at %s: %w", endpoint, err)
	}
	context.AfterFunc(ctx, func() { runtime.Close() })
	c, err := client.ForServer(s.api, client.Identity{Component: "kubelet", User: "system:node:" + n.name, Groups: []string{"system:nodes"}})
	if err != nil {
		return err
	}
	clusterRanges, err := parseRanges(s.config.Loops.ClusterCIDRs)
	if err != nil {
		return err
	}
	if err := podnet.EnsureMasquerade(clusterRanges); err != nil {
		return err
	}
	groups, err := cgroup.New(cgroup.Options{Root: n.place.cgroup, PodPidsLimit: podPidsLimit, Log: s.config.Log})
	if err != nil {
		return err
	}
	k, err := kubelet.New(kubelet.Options{
		Client: c, NodeName: n.name, NodeIPs: n.ips, Labels: s.config.Node.Labels, Port: int32(s.config.Node.Port), MaxPods: s.config.Node.MaxPods,
		Runtime: runtime, SandboxSeccomp: seccomp, Cgroups: groups, HostPorts: &hostPorts{},
		RootDir: n.place.kubelet, LogDir: n.place.podLogs, ContainerLogDir: n.place.containerLogs,
		ClusterDNS: dnsAddress(s.config.ServiceCIDRs), ClusterDomain: clusterDomain, Log: s.config.Log,
		Stage: func(stage kubelet.Stage) {
			span := c.Begin(stage.Pod, stage.Name)
			span.EndAt(stage.Start, stage.End, stage.Err, containerAttribute(stage.Container)...)
			if stage.Name == kubelet.StageSandbox && stage.Err == nil && !stage.Pod.Spec.HostNetwork {
				s.wg.Go(func() {
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
	if err := n.serveKubelet(ctx, c, k, runtime, groups); err != nil {
		return err
	}
	s.wg.Go(func() {
		if err := k.Run(ctx); err != nil && ctx.Err() == nil {
			s.failed <- fmt.Errorf("the kubelet: %w", err)
		}
	})
	s.wg.Go(func() { n.connectPods(ctx, c) })
	return nil
}

// podPidsLimit keeps a fork bomb in a pod from taking all processes of the node.
const podPidsLimit = 4096

// serveKubelet answers on the kubelet's port.
func (n *node) serveKubelet(ctx context.Context, c *client.Client, k *kubelet.Kubelet, runtime *cri.Client, groups *cgroup.Manager) error {
	s := n.s
	measured, err := n.stats(k, runtime, groups)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(s.config.Node.Port)))
	if err != nil {
		return fmt.Errorf("the kubelet cannot listen: %w", err)
	}
	more := prometheus.NewRegistry()
	server := server.New(server.Options{
		NodeName: n.name, API: c.Kubernetes(), Pods: k, Runtime: runtime, Log: s.config.Log, LogDir: filepath.Dir(n.place.podLogs),
		ClientCAs: func() *x509.CertPool { return s.certs.Pool(pki.CA) },
		TLS:       s.certs.ServerConfig(&tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, pki.Kubelet, pki.CA),
		Stats:     measured,
		Config:    func() any { return n.configuration() },
		Healthy:   k.Healthy,
		Metrics:   prometheus.Gatherers{k.Metrics(), more},
		Probes:    k.ProbeMetrics(),
	})
	more.MustRegister(server, runtime, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.wg.Go(func() {
		if err := server.Serve(ctx, listener); err != nil && ctx.Err() == nil {
			s.failed <- fmt.Errorf("the kubelet's server: %w", err)
		}
	})
	return nil
}

// connectPods configures the pods' network as soon as the node has a range of addresses.
func (n *node) connectPods(ctx context.Context, c *client.Client) {
	log := n.s.config.Log
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if err := n.writeNetwork(ctx, c); err == nil {
			return
		} else if wait >= time.Second && ctx.Err() == nil {
			log.Warn("the pods' network is not configured yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (n *node) writeNetwork(ctx context.Context, c *client.Client) error {
	object, err := c.Kubernetes().CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ranges, err := parseRanges(object.Spec.PodCIDRs)
	if err != nil {
		return err
	}
	return podnet.Config{Dir: n.place.network, State: n.place.addresses, PodCIDRs: ranges}.Write()
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
	if pid, err := occupant(dataDir); err != nil || pid != 0 {
		return errors.Join(err, fmt.Errorf("%s is still in use by process %d", dataDir, pid))
	}
	p := placeOf(dataDir)
	if _, err := os.Stat(p.kubelet); errors.Is(err, os.ErrNotExist) {
		return nil // there was never a node
	}
	failed := errors.Join(bundle.Clean(ctx, dataDir), podnet.Config{Dir: p.network, State: p.addresses}.Clean())
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
