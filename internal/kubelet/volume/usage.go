package volume

import (
	"context"
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
	m.mu.Lock()
	volumes := maps.Clone(m.pods[uid])
	m.mu.Unlock()
	var list []Usage
	for name, r := range volumes {
		if r.plugin != nil && !r.device {
			u, measured, err := r.plugin.Usage(ctx, uid, r.name)
			if err != nil {
				return nil, err
			}
			if measured {
				u.Volume, u.Time = name, m.opts.Clock.Now()
				list = append(list, u)
			}
			continue
		}
		local := strings.Contains(r.path, "/kubernetes.io~local-volume/")
		if !r.counted && !local {
			continue
		}
		u, err := usageOf(ctx, r.path, r.counted)
		if err != nil {
			return nil, err
		}
		u.Volume, u.Time = name, m.opts.Clock.Now()
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b Usage) int { return strings.Compare(a.Volume, b.Volume) })
	return list, nil
}
