package disk

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skiff/internal/localvolume"
)

// Name is the name of the driver.
const Name = localvolume.Driver

// Options of New.
type Options struct {
	Dir      string // the directory of the images
	NodeName string
	Version  string
	Log      *slog.Logger
}

// Driver implements CSI's identity, controller and node services.
type Driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer

	opts Options
	// allocating is held from finding that there is room until it is taken.
	allocating sync.Mutex

	mu    sync.Mutex
	locks map[string]chan struct{} // of the volumes that a call is about; closed when it ends
}

// New returns the driver, and removes images that an earlier process did not finish.
func New(opts Options) (*Driver, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, err
	}
	parts, err := filesIn(opts.Dir, partSuffix)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		if err := os.Remove(part); err != nil {
			return nil, err
		}
	}
	return &Driver{opts: opts, locks: map[string]chan struct{}{}}, nil
}

// filesIn returns the paths of the files of a directory whose names end so; none if there is no directory.
func filesIn(dir, suffix string) (paths []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), suffix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// GetPluginInfo implements csi.IdentityServer.
func (d *Driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Name, VendorVersion: d.opts.Version}, nil
}

// GetPluginCapabilities implements csi.IdentityServer.
func (d *Driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}},
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}},
	}}, nil
}

// Probe implements csi.IdentityServer.
func (d *Driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

const (
	imageSuffix = ".img"
	partSuffix  = ".part"
)

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func checkID(id string) error {
	switch {
	case id == "":
		return status.Error(codes.InvalidArgument, "the volume has no name")
	case !validID.MatchString(id) || strings.HasSuffix(id, imageSuffix) || strings.HasSuffix(id, partSuffix):
		return status.Errorf(codes.InvalidArgument, "%.200q cannot be the name of a volume", id)
	}
	return nil
}

func (d *Driver) image(id string) string { return filepath.Join(d.opts.Dir, id+imageSuffix) }

// existing returns the size of a volume's image. For a volume that there cannot be it is codes.NotFound too.
func (d *Driver) existing(id string) (size int64, err error) {
	switch {
	case id == "":
		return 0, status.Error(codes.InvalidArgument, "the call names no volume")
	case checkID(id) != nil:
		return 0, status.Errorf(codes.NotFound, "there is no volume %.200q on node %s", id, d.opts.NodeName)
	}
	info, err := os.Stat(d.image(id))
	switch {
	case os.IsNotExist(err):
		return 0, status.Errorf(codes.NotFound, "there is no volume %s on node %s", id, d.opts.NodeName)
	case err != nil:
		return 0, internal("failed to find volume %s: %w", id, err)
	}
	return info.Size(), nil
}

// lock waits until no other call is about a volume. The caller calls unlock.
func (d *Driver) lock(ctx context.Context, id string) (unlock func(), err error) {
	for {
		d.mu.Lock()
		busy := d.locks[id]
		if busy == nil {
			done := make(chan struct{})
			d.locks[id] = done
			d.mu.Unlock()
			return func() {
				d.mu.Lock()
				delete(d.locks, id)
				d.mu.Unlock()
				close(done)
			}, nil
		}
		d.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, status.Errorf(codes.Aborted, "another call is about volume %s", id)
		}
	}
}
