package kubelet

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/kubelet/volume"
)

// Usage is what the volumes of a pod take.
func (k *Kubelet) Usage(ctx context.Context, uid types.UID) ([]volume.Usage, error) {
	counting, ok := k.options.Volumes.(interface {
		Usage(context.Context, types.UID) ([]volume.Usage, error)
	})
	if !ok {
		return nil, nil // a test's, that are imaginary
	}
	return counting.Usage(ctx, uid)
}
