package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER} {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	var topology *csi.Topology
	if all := d.topology(); len(all) > 0 {
		topology = all[0]
	}
	return &csi.NodeGetInfoResponse{NodeId: d.node, MaxVolumesPerNode: d.most, AccessibleTopology: topology}, nil
}

func (d *driver) NodeStageVolume(_ context.Context, q *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if err := needs("volume_id", q.VolumeId, "staging_target_path", q.StagingTargetPath); err != nil {
		return nil, err
	}
	if err := supported(q.VolumeCapability); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.volume(q.VolumeId)
	if err != nil {
		return nil, err
	}
	if _, attached := t.Nodes[d.node]; d.shared && d.attach && !attached {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is not attached to node %s", t.ID, d.node)
	}
	return &csi.NodeStageVolumeResponse{}, bind(d.data(volumes, q.VolumeId), q.StagingTargetPath, false)
}

func (d *driver) NodeUnstageVolume(_ context.Context, q *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := needs("volume_id", q.VolumeId, "staging_target_path", q.StagingTargetPath); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return &csi.NodeUnstageVolumeResponse{}, unbind(q.StagingTargetPath)
}

func (d *driver) NodePublishVolume(ctx context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := needs("volume_id", q.VolumeId, "target_path", q.TargetPath); err != nil {
		return nil, err
	}
	if err := supported(q.VolumeCapability); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if q.VolumeContext["csi.storage.k8s.io/ephemeral"] == "true" {
		id := idOf("vol", q.VolumeId)
		if t, err := d.load(volumes, id); err != nil {
			return nil, err
		} else if t == nil {
			if err := d.make(ctx, volumes, &thing{ID: id, Name: q.VolumeId, Size: defaultSize}, ""); err != nil {
				return nil, err
			}
		}
		return &csi.NodePublishVolumeResponse{}, bind(d.data(volumes, id), q.TargetPath, q.Readonly)
	}
	if err := needs("staging_target_path", q.StagingTargetPath); err != nil {
		return nil, err
	}
	if _, err := d.volume(q.VolumeId); err != nil {
		return nil, err
	}
	if q.VolumeCapability.AccessMode.GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		for _, at := range mountsOf(q.VolumeId) {
			if at != q.StagingTargetPath && at != q.TargetPath {
				return nil, status.Errorf(codes.FailedPrecondition, "the volume is published at %s", at)
			}
		}
	}
	return &csi.NodePublishVolumeResponse{}, bind(q.StagingTargetPath, q.TargetPath, q.Readonly)
}

func (d *driver) NodeUnpublishVolume(_ context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := needs("volume_id", q.VolumeId, "target_path", q.TargetPath); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := unbind(q.TargetPath); err != nil {
		return nil, err
	}
	if validID.MatchString(q.VolumeId) {
		return &csi.NodeUnpublishVolumeResponse{}, nil
	}
	return &csi.NodeUnpublishVolumeResponse{}, d.remove(volumes, idOf("vol", q.VolumeId)) // one that was in a pod's spec ends with it
}

func (d *driver) NodeGetVolumeStats(_ context.Context, q *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := needs("volume_id", q.VolumeId, "volume_path", q.VolumePath); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.volume(q.VolumeId)
	if err != nil {
		return nil, err
	}
	var s unix.Statfs_t
	if err := unix.Statfs(q.VolumePath, &s); err != nil {
		return nil, status.Errorf(codes.NotFound, "there is nothing at %s: %v", q.VolumePath, err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{
		{Unit: csi.VolumeUsage_BYTES, Total: t.Size, Available: min(t.Size, int64(s.Bavail)*s.Bsize), Used: 0},
		{Unit: csi.VolumeUsage_INODES, Total: int64(s.Files), Available: int64(s.Ffree), Used: int64(s.Files - s.Ffree)}}}, nil
}

func (d *driver) NodeExpandVolume(_ context.Context, q *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	if err := needs("volume_id", q.VolumeId, "volume_path", q.VolumePath); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.volume(q.VolumeId)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(q.VolumePath); err != nil {
		return nil, status.Errorf(codes.NotFound, "there is nothing at %s: %v", q.VolumePath, err)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: t.Size}, nil
}

// mountTable returns the mount points of this process, and what directory of its file system each shows.
func mountTable() (at, of []string) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, nil
	}
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			at, of = append(at, fields[4]), append(of, fields[3])
		}
	}
	return at, of
}

// mounted reports whether something is mounted at exactly this path.
func mounted(path string) bool {
	at, _ := mountTable()
	return slices.Contains(at, path)
}

// mountsOf returns where a volume is mounted.
func mountsOf(id string) (list []string) {
	at, of := mountTable()
	for i := range at {
		if strings.HasSuffix(of[i], "/"+volumes+"/"+id+"/data") {
			list = append(list, at[i])
		}
	}
	return list
}

// bind mounts a directory at a path, once.
func bind(from, to string, readOnly bool) error {
	if mounted(to) {
		return nil
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil || !readOnly {
		return err
	}
	return unix.Mount("", to, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// unbind unmounts a path and removes it.
func unbind(path string) error {
	for {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // nothing is mounted there, or nothing is there
			break
		}
		if err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
