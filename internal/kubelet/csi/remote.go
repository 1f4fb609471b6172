package csi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"skiff/internal/kubelet/plugins"
)

// remote is a driver behind a socket.
type remote struct {
	csi.UnimplementedNodeServer
	connection *grpc.ClientConn
	node       csi.NodeClient
}

func connect(endpoint string) (*remote, error) {
	connection, err := plugins.Connect(endpoint)
	if err != nil {
		return nil, err
	}
	return &remote{connection: connection, node: csi.NewNodeClient(connection)}, nil
}

func (r *remote) NodeStageVolume(ctx context.Context, q *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return r.node.NodeStageVolume(ctx, q)
}

func (r *remote) NodeUnstageVolume(ctx context.Context, q *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return r.node.NodeUnstageVolume(ctx, q)
}

func (r *remote) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return r.node.NodePublishVolume(ctx, q)
}

func (r *remote) NodeUnpublishVolume(ctx context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return r.node.NodeUnpublishVolume(ctx, q)
}

func (r *remote) NodeGetVolumeStats(ctx context.Context, q *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	return r.node.NodeGetVolumeStats(ctx, q)
}

func (r *remote) NodeExpandVolume(ctx context.Context, q *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	return r.node.NodeExpandVolume(ctx, q)
}

func (r *remote) NodeGetCapabilities(ctx context.Context, q *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return r.node.NodeGetCapabilities(ctx, q)
}

func (r *remote) NodeGetInfo(ctx context.Context, q *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return r.node.NodeGetInfo(ctx, q)
}

// Registration registers the drivers that come with a socket. It is the handler of the plugin watcher for them.
type Registration struct {
	Plugin *Plugin
	Info   *NodeInfo
}

var _ plugins.Handler = (*Registration)(nil)

// Validate checks the versions of the specification that a driver speaks, and that no other driver has its name.
func (r *Registration) Validate(name, endpoint string, versions []string) error {
	if len(versions) == 0 {
		return fmt.Errorf("kubernetes.io/csi: RegisterPlugin for CSI driver %q failed. Plugin returned an empty list for supported versions", name)
	}
	supported := func(text string) bool {
		v, err := utilversion.ParseGeneric(text)
		return err == nil && v.Major() == 1
	}
	if !slices.ContainsFunc(versions, supported) {
		return fmt.Errorf("validation failed for CSI Driver %s at endpoint %s: None of the versions specified %q are supported", name, endpoint, versions)
	}
	if d, err := r.Plugin.drivers.get(name); err == nil {
		if other, ok := d.node.(*remote); !ok || other.connection.Target() != "passthrough:///"+strings.TrimPrefix(endpoint, "unix://") {
			return fmt.Errorf("kubernetes.io/csi: RegisterPlugin for CSI driver %q failed. Another driver with the same name is already registered", name)
		}
	}
	return nil
}

// registerTimeout is how long the API is tried while a driver registers.
const registerTimeout = time.Minute

// Register has a driver used from now on.
func (r *Registration) Register(ctx context.Context, name, endpoint string, _ []string) error {
	driver, err := connect(endpoint)
	if err != nil {
		return err
	}
	r.Plugin.drivers.set(name, driver)
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	if err := r.Plugin.register(ctx, r.Info, name); err != nil {
		r.Plugin.drivers.remove(name)
		return errors.Join(err, driver.connection.Close())
	}
	return nil
}

// Deregister removes a driver whose socket is gone.
func (r *Registration) Deregister(ctx context.Context, name, _ string) {
	if d, err := r.Plugin.drivers.get(name); err == nil {
		if old, ok := d.node.(*remote); ok {
			defer old.connection.Close()
		}
	}
	r.Plugin.drivers.remove(name)
	retry(ctx, r.Info.Log, "failed to remove the CSI driver "+name+" from the CSINode; retrying", func() error { return r.Info.uninstall(ctx, name) })
}
