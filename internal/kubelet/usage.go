package kubelet

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/kubelet/volume"
)

// Usage returns how much a pod's volumes use.
func (k *Kubelet) Usage(ctx context.Context, uid types.UID) ([]volume.Usage, error) {
	measured, ok := k.options.Volumes.(interface {
		Usage(context.Context, types.UID) ([]volume.Usage, error)
	})
	if !ok {
		return nil, nil // the volumes of tests are not measured
	}
	return measured.Usage(ctx, uid)
}

// claimUsage returns how much the PersistentVolumes of a pod use.
func (k *Kubelet) claimUsage(ctx context.Context, uid types.UID) []volume.Usage {
	measured, ok := k.options.Volumes.(interface {
		ClaimUsage(context.Context, types.UID) ([]volume.Usage, error)
	})
	if !ok {
		return nil
	}
	list, err := measured.ClaimUsage(ctx, uid)
	if err != nil {
		k.log.Debug("failed to measure a pod's volumes", "uid", uid, "err", err)
	}
	return list
}
