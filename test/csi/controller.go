package main

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	list := []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_VOLUME, csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT, csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME, csi.ControllerServiceCapability_RPC_EXPAND_VOLUME, csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER}
	if d.attach {
		list = append(list, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME, csi.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES)
	}
	r := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range list {
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}}})
	}
	return r, nil
}

func (d *driver) CreateVolume(ctx context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := needs("name", q.Name); err != nil {
		return nil, err
	}
	if err := supported(q.VolumeCapabilities...); err != nil {
		return nil, err
	}
	size := q.CapacityRange.GetRequiredBytes()
	if size == 0 {
		size = defaultSize
		if limit := q.CapacityRange.GetLimitBytes(); limit > 0 {
			size = min(size, limit)
		}
	}
	if limit := q.CapacityRange.GetLimitBytes(); size < 0 || limit < 0 || limit > 0 && size > limit {
		return nil, status.Error(codes.OutOfRange, "no size is in the range")
	}
	wanted := &thing{ID: idOf("vol", q.Name), Name: q.Name, Size: size, Context: contextOf(q.Parameters), Snapshot: q.VolumeContentSource.GetSnapshot().GetSnapshotId(),
		Volume: q.VolumeContentSource.GetVolume().GetVolumeId()}
	d.mu.Lock()
	defer d.mu.Unlock()
	there, err := d.load(volumes, wanted.ID)
	if err != nil {
		return nil, err
	}
	if there != nil {
		limit := q.CapacityRange.GetLimitBytes()
		if there.Size < size || limit > 0 && there.Size > limit || there.Snapshot != wanted.Snapshot || there.Volume != wanted.Volume {
			return nil, status.Errorf(codes.AlreadyExists, "volume %s is another one", q.Name)
		}
		return &csi.CreateVolumeResponse{Volume: there.asVolume(d)}, nil
	}
	from, source := "", (*thing)(nil)
	switch {
	case wanted.Snapshot != "":
		from = d.data(snapshots, wanted.Snapshot)
		source, err = d.load(snapshots, wanted.Snapshot)
	case wanted.Volume != "":
		from = d.data(volumes, wanted.Volume)
		source, err = d.load(volumes, wanted.Volume)
	}
	switch {
	case err != nil:
		return nil, err
	case from != "" && source == nil:
		return nil, status.Error(codes.NotFound, "the source of the volume does not exist")
	case source != nil && source.Size > size:
		return nil, status.Error(codes.OutOfRange, "the source of the volume is larger")
	}
	if err := d.make(ctx, volumes, wanted, from); err != nil {
		return nil, err
	}
	return &csi.CreateVolumeResponse{Volume: wanted.asVolume(d)}, nil
}

func (d *driver) DeleteVolume(_ context.Context, q *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if err := needs("volume_id", q.VolumeId); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.load(volumes, q.VolumeId)
	if err != nil {
		return nil, err
	}
	if t != nil && len(t.Nodes) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to a node", q.VolumeId)
	}
	return &csi.DeleteVolumeResponse{}, d.remove(volumes, q.VolumeId)
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context, q *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if err := needs("volume_id", q.VolumeId); err != nil {
		return nil, err
	}
	if len(q.VolumeCapabilities) == 0 {
		return nil, status.Error(codes.InvalidArgument, "volume_capabilities are missing")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.volume(q.VolumeId); err != nil {
		return nil, err
	}
	if err := supported(q.VolumeCapabilities...); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeContext: q.VolumeContext,
		VolumeCapabilities: q.VolumeCapabilities, Parameters: q.Parameters}}, nil
}

func (d *driver) ListVolumes(_ context.Context, q *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list, err := d.all(volumes)
	if err != nil {
		return nil, err
	}
	list, next, err := page(list, q.StartingToken, q.MaxEntries)
	if err != nil {
		return nil, err
	}
	r := &csi.ListVolumesResponse{NextToken: next}
	for _, t := range list {
		s := &csi.ListVolumesResponse_VolumeStatus{}
		for node := range t.Nodes {
			s.PublishedNodeIds = append(s.PublishedNodeIds, node)
		}
		r.Entries = append(r.Entries, &csi.ListVolumesResponse_Entry{Volume: t.asVolume(d), Status: s})
	}
	return r, nil
}

func (d *driver) ControllerGetVolume(_ context.Context, q *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if err := needs("volume_id", q.VolumeId); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.volume(q.VolumeId)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeResponse{Volume: t.asVolume(d), Status: &csi.ControllerGetVolumeResponse_VolumeStatus{}}, nil
}

func (d *driver) ControllerExpandVolume(_ context.Context, q *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	if err := needs("volume_id", q.VolumeId); err != nil {
		return nil, err
	}
	if q.CapacityRange == nil {
		return nil, status.Error(codes.InvalidArgument, "capacity_range is missing")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.volume(q.VolumeId)
	if err != nil {
		return nil, err
	}
	t.Size = max(t.Size, q.CapacityRange.RequiredBytes)
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: t.Size, NodeExpansionRequired: true}, d.save(volumes, t)
}

func (d *driver) ControllerPublishVolume(_ context.Context, q *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := needs("volume_id", q.VolumeId, "node_id", q.NodeId); err != nil {
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
	if q.NodeId != d.node && !d.shared {
		return nil, status.Errorf(codes.NotFound, "there is no node %s", q.NodeId)
	}
	for node := range t.Nodes {
		if node != q.NodeId {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is attached to node %s", t.ID, node)
		}
	}
	if readOnly, there := t.Nodes[q.NodeId]; there && readOnly != q.Readonly {
		return nil, status.Error(codes.AlreadyExists, "the volume is attached with another access mode")
	}
	t.Nodes = map[string]bool{q.NodeId: q.Readonly}
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"attached": t.ID}}, d.save(volumes, t)
}

func (d *driver) ControllerUnpublishVolume(_ context.Context, q *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := needs("volume_id", q.VolumeId); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t, err := d.load(volumes, q.VolumeId)
	if err != nil || t == nil {
		return &csi.ControllerUnpublishVolumeResponse{}, err
	}
	delete(t.Nodes, q.NodeId)
	return &csi.ControllerUnpublishVolumeResponse{}, d.save(volumes, t)
}

func (d *driver) CreateSnapshot(ctx context.Context, q *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := needs("name", q.Name, "source_volume_id", q.SourceVolumeId); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	id := idOf("snap", q.Name)
	t, err := d.load(snapshots, id)
	if err != nil {
		return nil, err
	}
	if t != nil && t.Volume != q.SourceVolumeId {
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %s is of another volume", q.Name)
	}
	if t == nil {
		source, err := d.volume(q.SourceVolumeId)
		if err != nil {
			return nil, err
		}
		t = &thing{ID: id, Name: q.Name, Size: source.Size, Volume: source.ID, Created: time.Now()}
		if err := d.make(ctx, snapshots, t, d.data(volumes, source.ID)); err != nil {
			return nil, err
		}
	}
	return &csi.CreateSnapshotResponse{Snapshot: t.asSnapshot()}, nil
}

func (d *driver) DeleteSnapshot(_ context.Context, q *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if err := needs("snapshot_id", q.SnapshotId); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return &csi.DeleteSnapshotResponse{}, d.remove(snapshots, q.SnapshotId)
}

func (d *driver) ListSnapshots(_ context.Context, q *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list, err := d.all(snapshots)
	if err != nil {
		return nil, err
	}
	var found []*thing
	for _, t := range list {
		if (q.SnapshotId == "" || t.ID == q.SnapshotId) && (q.SourceVolumeId == "" || t.Volume == q.SourceVolumeId) {
			found = append(found, t)
		}
	}
	found, next, err := page(found, q.StartingToken, q.MaxEntries)
	if err != nil {
		return nil, err
	}
	r := &csi.ListSnapshotsResponse{NextToken: next}
	for _, t := range found {
		r.Entries = append(r.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: t.asSnapshot()})
	}
	return r, nil
}
