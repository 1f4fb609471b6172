package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// driver keeps volumes and snapshots as directories: <dir>/volumes/<id>/data and <dir>/snapshots/<id>/data, each with a thing.json beside it.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	dir, name, node string
	attach          bool
	shared          bool // the directory is that of the drivers of other nodes, too
	most            int64
	mu              lock // held in every call: this driver is for tests
}

// lock is held by one call, of all processes that serve the same directory if it has a file.
type lock struct {
	mu   sync.Mutex
	file *os.File
}

func (l *lock) Lock() {
	l.mu.Lock()
	for l.file != nil && errors.Is(unix.Flock(int(l.file.Fd()), unix.LOCK_EX), unix.EINTR) {
	}
}

func (l *lock) Unlock() {
	if l.file != nil {
		_ = unix.Flock(int(l.file.Fd()), unix.LOCK_UN) // it cannot fail
	}
	l.mu.Unlock()
}

// thing is a volume or a snapshot.
type thing struct {
	ID, Name string
	Size     int64
	Volume   string            // the volume that a snapshot is of, or that a volume was cloned from
	Snapshot string            // the snapshot that a volume was made from
	Created  time.Time         `json:",omitzero"`
	Nodes    map[string]bool   `json:",omitempty"` // where a volume is attached, and whether for reading only
	Context  map[string]string `json:",omitempty"`
}

const (
	volumes     = "volumes"
	snapshots   = "snapshots"
	defaultSize = 1 << 30
)

// segment is the topology key of the driver.
func (d *driver) segment() string { return "topology." + d.name + "/node" }

// prepare makes the driver's directories, and removes what a process that was killed has not finished.
func (d *driver) prepare() error {
	if d.shared {
		if err := os.MkdirAll(d.dir, 0o755); err != nil {
			return err
		}
		file, err := os.OpenFile(filepath.Join(d.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		d.mu.file = file
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, kind := range []string{volumes, snapshots} {
		if err := os.MkdirAll(filepath.Join(d.dir, kind), 0o755); err != nil {
			return err
		}
		left, err := filepath.Glob(filepath.Join(d.dir, kind, ".*"))
		if err != nil {
			return err
		}
		for _, path := range left {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

var validID = regexp.MustCompile(`^(vol|snap)-[0-9a-f]{32}$`)

func idOf(prefix, name string) string {
	return fmt.Sprintf("%s-%x", prefix, sha256.Sum256([]byte(name)))[:len(prefix)+33]
}

func (d *driver) data(kind, id string) string { return filepath.Join(d.dir, kind, id, "data") }

// load returns a volume or a snapshot, nil if there is none.
func (d *driver) load(kind, id string) (*thing, error) {
	if !validID.MatchString(id) {
		return nil, nil
	}
	text, err := os.ReadFile(filepath.Join(d.dir, kind, id, "thing.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t := &thing{}
	return t, json.Unmarshal(text, t)
}

func (d *driver) save(kind string, t *thing) error {
	return write(filepath.Join(d.dir, kind, t.ID), t)
}

func write(dir string, t *thing) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	part := filepath.Join(dir, ".thing.json")
	if err := os.WriteFile(part, text, 0o644); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(dir, "thing.json"))
}

// make makes a volume or a snapshot, with a copy of a directory in it unless from is empty. It appears as a whole.
func (d *driver) make(ctx context.Context, kind string, t *thing, from string) error {
	fresh := filepath.Join(d.dir, kind, ".new-"+t.ID)
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(fresh, "data"), 0o755); err != nil {
		return err
	}
	if from != "" {
		if out, err := exec.CommandContext(ctx, "cp", "-a", from+"/.", filepath.Join(fresh, "data")).CombinedOutput(); err != nil {
			return fmt.Errorf("failed to copy %s: %w: %s", from, err, out)
		}
	}
	if err := os.Chmod(filepath.Join(fresh, "data"), 0o777); err != nil {
		return err
	}
	if err := write(fresh, t); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(d.dir, kind, t.ID))
}

// remove removes a volume or a snapshot, as a whole.
func (d *driver) remove(kind, id string) error {
	if !validID.MatchString(id) {
		return nil
	}
	gone := filepath.Join(d.dir, kind, ".gone-"+id)
	if err := os.Rename(filepath.Join(d.dir, kind, id), gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(gone)
}

// all returns all volumes or snapshots by id.
func (d *driver) all(kind string) ([]*thing, error) {
	entries, err := os.ReadDir(filepath.Join(d.dir, kind))
	if err != nil {
		return nil, err
	}
	var list []*thing
	for _, e := range entries {
		t, err := d.load(kind, e.Name())
		if err != nil {
			return nil, err
		}
		if t != nil {
			list = append(list, t)
		}
	}
	return list, nil
}

// page returns a part of a list, and the token of the next one.
func page[T any](list []T, token string, most int32) ([]T, string, error) {
	from := 0
	if token != "" {
		var err error
		if from, err = strconv.Atoi(token); err != nil || from < 0 || from > len(list) {
			return nil, "", status.Errorf(codes.Aborted, "the token %q is none of this driver's", token)
		}
	}
	if most < 0 {
		return nil, "", status.Error(codes.InvalidArgument, "max_entries must not be negative")
	}
	list = list[from:]
	if most == 0 || len(list) <= int(most) {
		return list, "", nil
	}
	return list[:most], strconv.Itoa(from + int(most)), nil
}

// needs returns an error for the first argument that is missing.
func needs(arguments ...string) error {
	for i := 0; i+1 < len(arguments); i += 2 {
		if arguments[i+1] == "" {
			return status.Errorf(codes.InvalidArgument, "%s is missing", arguments[i])
		}
	}
	return nil
}

// volume returns a volume that has to exist.
func (d *driver) volume(id string) (*thing, error) {
	t, err := d.load(volumes, id)
	if err == nil && t == nil {
		err = status.Errorf(codes.NotFound, "there is no volume %s", id)
	}
	return t, err
}

// supported returns an error for how a volume cannot be accessed.
func supported(list ...*csi.VolumeCapability) error {
	if len(list) == 0 || list[0] == nil {
		return status.Error(codes.InvalidArgument, "volume_capability is missing")
	}
	if slices.ContainsFunc(list, func(c *csi.VolumeCapability) bool { return c.GetBlock() != nil }) {
		return status.Error(codes.InvalidArgument, "volumes are directories, not block devices")
	}
	return nil
}

// topology returns where the driver's volumes can be reached; nil if everywhere.
func (d *driver) topology() []*csi.Topology {
	if d.shared {
		return nil
	}
	return []*csi.Topology{{Segments: map[string]string{d.segment(): d.node}}}
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "1"}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(t csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}}
	}
	list := []*csi.PluginCapability{service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}}}
	if !d.shared {
		list = append(list, service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS))
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: list}, nil
}

func (t *thing) asVolume(d *driver) *csi.Volume {
	v := &csi.Volume{VolumeId: t.ID, CapacityBytes: t.Size, VolumeContext: t.Context, AccessibleTopology: d.topology()}
	switch {
	case t.Snapshot != "":
		v.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: t.Snapshot}}}
	case t.Volume != "":
		v.ContentSource = &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: t.Volume}}}
	}
	return v
}

func (t *thing) asSnapshot() *csi.Snapshot {
	return &csi.Snapshot{SnapshotId: t.ID, SourceVolumeId: t.Volume, SizeBytes: t.Size, CreationTime: timestamppb.New(t.Created), ReadyToUse: true}
}

// contextOf returns the parameters of a class that are handed on to the node: not those that the provisioner itself adds.
func contextOf(parameters map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range parameters {
		if !strings.HasPrefix(key, "csi.storage.k8s.io/") {
			out[key] = value
		}
	}
	return out
}
