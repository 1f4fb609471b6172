package housekeeping

import (
	"context"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/kubelet/cri"
)

// FindOrphans has workers remove what the node has of pods that the API does not know. All pods of the API must have their workers.
func (m *Manager) FindOrphans(ctx context.Context) {
	orphans := map[types.UID]bool{}
	sandboxes, err := m.options.Runtime.ListPodSandboxes(ctx, nil)
	if err != nil {
		return // what cannot be stopped must not be cleaned up
	}
	for _, s := range sandboxes {
		if uid := s.Labels[cri.LabelPodUID]; uid != "" {
			orphans[types.UID(uid)] = true
		}
	}
	for _, list := range append(m.options.Leftovers, m.podDirs) {
		uids, err := list()
		if err != nil {
			m.log.Warn("failed to list what pods have left on the node", "error", err)
		}
		for _, uid := range uids {
			orphans[uid] = true
		}
	}
	pods, err := m.options.Pods.List()
	if err != nil {
		return
	}
	for _, pod := range pods {
		delete(orphans, pod.UID)
	}
	for uid := range orphans {
		if !m.options.Pods.HasWorker(uid) {
			m.log.Info("removing what is left of a pod that the API does not know", "uid", uid)
			m.options.Pods.RemoveOrphan(uid)
		}
	}
}

// podDirs lists the pods that have a directory.
func (m *Manager) podDirs() (uids []types.UID, err error) {
	entries, err := os.ReadDir(filepath.Join(m.options.RootDir, "pods"))
	for _, e := range entries {
		uids = append(uids, types.UID(e.Name()))
	}
	return uids, err
}
