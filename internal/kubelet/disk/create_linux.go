package disk

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skiff/internal/localvolume"
)

// CreateVolume implements csi.ControllerServer. A volume that exists with the same properties is created already.
func (d *Driver) CreateVolume(ctx context.Context, rq *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	id := rq.GetName()
	if err := checkID(id); err != nil {
		return nil, err
	}
	fsType, err := checkCapabilities(rq.GetVolumeCapabilities())
	if err != nil {
		return nil, err
	}
	thin, err := checkParameters(rq.GetParameters())
	if err != nil {
		return nil, err
	}
	if rq.GetVolumeContentSource() != nil {
		return nil, status.Error(codes.InvalidArgument, "local volumes cannot be made from a snapshot or from another volume")
	}
	least, most := rq.GetCapacityRange().GetRequiredBytes(), rq.GetCapacityRange().GetLimitBytes()
	if least < 0 || most < 0 {
		return nil, status.Error(codes.InvalidArgument, "the size is negative")
	}
	if least == 0 {
		least = min(1<<30, max(most, granularity))
	}
	size := roundUp(least, fsType)
	if most > 0 && size > most {
		return nil, status.Errorf(codes.OutOfRange, "the volume would be of %s, which is more than %s", bytes(size), bytes(most))
	}
	unlock, err := d.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	response := &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id, CapacityBytes: size, VolumeContext: map[string]string{}}}
	if thin {
		response.Volume.VolumeContext[localvolume.Allocation] = localvolume.Thin
	}
	there, err := d.existing(id)
	if status.Code(err) == codes.NotFound {
		return response, d.build(ctx, id, size, fsType, thin)
	}
	if err != nil {
		return nil, err
	}
	has, err := contentOf(d.image(id))
	switch {
	case err != nil:
		return nil, internal("failed to read volume %s: %w", id, err)
	case there < least || most > 0 && there > most:
		return nil, status.Errorf(codes.AlreadyExists, "volume %s exists and has another size, %s", id, bytes(there))
	case fsType != "" && has.fsType != fsType:
		return nil, status.Errorf(codes.AlreadyExists, "volume %s exists and does not have the file system %s", id, fsType)
	}
	response.Volume.CapacityBytes = there
	return response, nil
}

// checkParameters returns whether the parameters of a StorageClass ask for a thin volume.
func checkParameters(parameters map[string]string) (thin bool, err error) {
	for key, value := range parameters {
		switch {
		case strings.HasPrefix(key, "csi.storage.k8s.io/"): // for the provisioner
		case key == localvolume.Allocation && (value == localvolume.Full || value == localvolume.Thin):
			thin = value == localvolume.Thin
		case key == localvolume.Allocation:
			return false, status.Errorf(codes.InvalidArgument, "allocation is %q; it can be %s or %s", value, localvolume.Full, localvolume.Thin)
		default:
			return false, status.Errorf(codes.InvalidArgument, "local volumes have no parameter %q", key)
		}
	}
	return thin, nil
}

// checkCapabilities returns the file system that a volume needs, empty for a block volume.
func checkCapabilities(capabilities []*csi.VolumeCapability) (fsType string, err error) {
	if len(capabilities) == 0 {
		return "", status.Error(codes.InvalidArgument, "the call names no volume capability")
	}
	for i, c := range capabilities {
		one, err := checkCapability(c)
		if err != nil {
			return "", err
		}
		if i > 0 && one != fsType {
			return "", status.Error(codes.InvalidArgument, "a volume has one file system, or is a block volume")
		}
		fsType = one
	}
	return fsType, nil
}

func checkCapability(c *csi.VolumeCapability) (fsType string, err error) {
	switch c.GetAccessMode().GetMode() {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	case csi.VolumeCapability_AccessMode_UNKNOWN:
		return "", status.Error(codes.InvalidArgument, "the volume capability has no access mode")
	default:
		return "", status.Error(codes.InvalidArgument, "a local volume is on one node: its access modes can be ReadWriteOnce and ReadWriteOncePod")
	}
	switch t := c.GetAccessType().(type) {
	case *csi.VolumeCapability_Block:
		return "", nil
	case *csi.VolumeCapability_Mount:
		switch fsType := t.Mount.GetFsType(); fsType {
		case "":
			return ext4, nil
		case ext4, xfs:
			return fsType, nil
		default:
			return "", status.Errorf(codes.InvalidArgument, "local volumes have no file system %q; they can have ext4 or xfs", fsType)
		}
	}
	return "", status.Error(codes.InvalidArgument, "the volume capability is neither mount nor block")
}

// detachTimeout is how long DeleteVolume waits until the kernel has detached a volume that was just unmounted.
const detachTimeout = 2 * time.Second

// DeleteVolume implements csi.ControllerServer. It deletes no volume that is in use.
func (d *Driver) DeleteVolume(ctx context.Context, rq *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	id := rq.GetVolumeId()
	if id == "" {
		return nil, status.Error(codes.InvalidArgument, "the call names no volume")
	}
	unlock, err := d.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, err := d.existing(id); status.Code(err) == codes.NotFound {
		return &csi.DeleteVolumeResponse{}, nil
	} else if err != nil {
		return nil, err
	}
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		dev, err := attached(d.image(id))
		if err != nil {
			return nil, internal("failed to delete volume %s: %w", id, err)
		}
		if dev == nil {
			break
		}
		name := dev.Name()
		_ = dev.Close()
		if ctx.Err() != nil || time.Since(began) > detachTimeout {
			return nil, status.Errorf(codes.FailedPrecondition, "volume %s is in use: it is attached to %s on node %s", id, name, d.opts.NodeName)
		}
	}
	if err := os.Remove(d.image(id)); err != nil {
		return nil, internal("failed to delete volume %s: %w", id, err)
	}
	return &csi.DeleteVolumeResponse{}, d.syncDir()
}

// ControllerExpandVolume implements csi.ControllerServer: it grows the image, and the device if it is attached. The file system grows on the node, in NodeExpandVolume
// or when the volume is next staged.
func (d *Driver) ControllerExpandVolume(ctx context.Context, rq *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	id := rq.GetVolumeId()
	unlock, err := d.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	there, err := d.existing(id)
	if err != nil {
		return nil, err
	}
	if rq.GetCapacityRange() == nil {
		return nil, status.Error(codes.InvalidArgument, "the call names no size")
	}
	has, err := contentOf(d.image(id))
	if err != nil {
		return nil, internal("failed to read volume %s: %w", id, err)
	}
	size, most := roundUp(rq.GetCapacityRange().GetRequiredBytes(), has.fsType), rq.GetCapacityRange().GetLimitBytes()
	if most > 0 && size > most {
		return nil, status.Errorf(codes.OutOfRange, "the volume would be of %s, which is more than %s", bytes(size), bytes(most))
	}
	if size > there {
		if err := d.growImage(id, size); err != nil {
			return nil, err
		}
	}
	if err := d.resizeDevice(id); err != nil {
		return nil, err
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: max(size, there), NodeExpansionRequired: has.fsType != ""}, nil
}
