package volume

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Usage is what a volume takes and what there is where it lies.
type Usage struct {
	Volume                              string // the pod's name of it
	Time                                time.Time
	Used, Available, Capacity           uint64 // bytes
	InodesUsed, InodesFree, InodesLimit uint64
}

// Usage returns what a pod's volumes take: of the pod's own directories the files in them, of a local volume what its file system says, of others
// what their driver says. Paths of the node, images and devices are not counted. A pod whose volumes were not set up has none.
func (m *Manager) Usage(ctx context.Context, uid types.UID) ([]Usage, error) {
	return m.usage(ctx, uid, true)
}

// ClaimUsage returns what the PersistentVolumes of a pod take, which costs no walk through files.
func (m *Manager) ClaimUsage(ctx context.Context, uid types.UID) ([]Usage, error) {
	return m.usage(ctx, uid, false)
}

func (m *Manager) usage(ctx context.Context, uid types.UID, own bool) ([]Usage, error) {
	m.mu.Lock()
	volumes := maps.Clone(m.pods[uid])
	m.mu.Unlock()
	var list []Usage
	var failed []error // a driver that does not answer says nothing of other volumes
	for name, r := range volumes {
		u, measured, err := m.usageOf(ctx, uid, r, own)
		if err != nil {
			failed = append(failed, err)
		}
		if measured && err == nil {
			u.Volume, u.Time = name, m.opts.Clock.Now()
			list = append(list, u)
		}
	}
	slices.SortFunc(list, func(a, b Usage) int { return strings.Compare(a.Volume, b.Volume) })
	return list, errors.Join(failed...)
}

func (m *Manager) usageOf(ctx context.Context, uid types.UID, r volumeState, own bool) (u Usage, measured bool, err error) {
	switch {
	case r.device:
		return u, false, nil
	case r.plugin != nil:
		return r.plugin.Usage(ctx, uid, r.name)
	case r.counted && own:
		u, err = usageOf(ctx, r.path, true)
		return u, true, err
	case strings.Contains(r.path, "/kubernetes.io~local-volume/"), strings.Contains(r.path, "/kubernetes.io~nfs/"):
		u, err = usageOf(ctx, r.path, false)
		return u, true, err
	}
	return u, false, nil
}
