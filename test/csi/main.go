// Command csi is a CSI driver for tests: its volumes are directories below one directory of the node. It has snapshots, clones and expansion; sizes are written
// down and not enforced, and there are no block devices. Controller, node and identity service listen on one socket. It must not import anything of skiff: it stands for
// the drivers of others.
//
//	csi --dir /var/lib/csi-directories --endpoint /var/lib/kubelet/plugins/directories.test/csi.sock --node n1 \
//	  --registration /var/lib/kubelet/plugins_registry/directories.test-reg.sock
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	dir := flag.String("dir", "/var/lib/csi-directories", "where volumes and snapshots are")
	endpoint := flag.String("endpoint", "", "the socket to listen on")
	register := flag.String("registration", "", "the socket in the kubelet's plugins_registry to register by; none if empty")
	kubeletEndpoint := flag.String("kubelet-endpoint", "", "the endpoint as the kubelet sees it; --endpoint if empty")
	name := flag.String("name", "directories.test", "the driver's name")
	node := flag.String("node", "", "the node's name; the host name if empty")
	attach := flag.Bool("attach", false, "volumes are attached to a node before they are mounted there")
	shared := flag.Bool("shared", false, "the directory is that of the drivers of other nodes, too: a volume can be attached to any node, to one at a time")
	most := flag.Int64("max-volumes", 0, "how many volumes the node takes; no limit if 0")
	flag.Parse()
	if *node == "" {
		*node, _ = os.Hostname()
	}
	if *kubeletEndpoint == "" {
		*kubeletEndpoint = *endpoint
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	d := &driver{dir: *dir, name: *name, node: *node, attach: *attach, shared: *shared, most: *most}
	if err := run(ctx, d, *endpoint, *register, *kubeletEndpoint); err != nil {
		fmt.Fprintln(os.Stderr, "csi:", err)
		os.Exit(1)
	}
}

// run serves the driver until ctx ends.
func run(ctx context.Context, d *driver, endpoint, register, kubeletEndpoint string) error {
	if err := d.prepare(); err != nil {
		return err
	}
	services := grpc.NewServer()
	csi.RegisterIdentityServer(services, d)
	csi.RegisterControllerServer(services, d)
	csi.RegisterNodeServer(services, d)
	ends := make(chan error, 2)
	serve := func(s *grpc.Server, path string) error {
		l, err := listen(path)
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, s.Stop)
		go func() { ends <- s.Serve(l) }()
		return nil
	}
	if err := serve(services, endpoint); err != nil {
		return err
	}
	if register != "" {
		s := grpc.NewServer()
		registration.RegisterRegistrationServer(s, &registrar{info: &registration.PluginInfo{Type: registration.CSIPlugin, Name: d.name, Endpoint: kubeletEndpoint,
			SupportedVersions: []string{"1.0.0"}}})
		if err := serve(s, register); err != nil {
			return err
		}
	}
	err := <-ends
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// listen listens on a socket in place of one that another process has left.
func listen(path string) (net.Listener, error) {
	path = strings.TrimPrefix(path, "unix://")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path)
}

// registrar tells the kubelet of the driver.
type registrar struct {
	registration.UnsafeRegistrationServer
	info *registration.PluginInfo
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return r.info, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	fmt.Fprintln(os.Stderr, "csi: registered:", s.PluginRegistered, s.Error)
	return &registration.RegistrationStatusResponse{}, nil
}
