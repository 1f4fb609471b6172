package csi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

const podVolumes = "volumes/kubernetes.io~csi"

// podDir returns the directory of a pod's volume.
func (p *Plugin) podDir(uid types.UID, name string) string {
	return filepath.Join(p.options.Root, "pods", string(uid), podVolumes, name)
}

// pluginDir is where staged volumes and block devices are.
func (p *Plugin) pluginDir() string {
	return filepath.Join(p.options.Root, "plugins", "kubernetes.io", "csi")
}

// targetPath returns where a volume is published for a pod.
func (p *Plugin) targetPath(uid types.UID, r *record) string {
	if r.Block != "" {
		return filepath.Join(p.pluginDir(), "volumeDevices", "publish", r.Name, string(uid))
	}
	return filepath.Join(p.podDir(uid, r.Name), "mount")
}

// stagedDir returns the directory with the record of a volume that is staged.
func (p *Plugin) stagedDir(r *record) string {
	if r.Block != "" {
		return filepath.Join(p.pluginDir(), "volumeDevices", r.Name, "data")
	}
	return filepath.Join(p.pluginDir(), r.Driver, fmt.Sprintf("%x", sha256.Sum256([]byte(r.Handle))))
}

// stagingPath returns where a volume is staged.
func (p *Plugin) stagingPath(r *record) string {
	if r.Block != "" {
		return filepath.Join(p.pluginDir(), "volumeDevices", "staging", r.Name)
	}
	return filepath.Join(p.stagedDir(r), "globalmount")
}

// attachmentID returns the name of the VolumeAttachment of a volume on this node.
func attachmentID(handle, driver, node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+node)))
}

// ephemeralHandle returns the handle of a volume that is in a pod's spec.
func ephemeralHandle(uid types.UID, name string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(uid)+name)))
}

// recordsOf returns the records of the volumes that a pod uses.
func (p *Plugin) recordsOf(uid types.UID) ([]*record, error) {
	entries, err := os.ReadDir(p.podDir(uid, ""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []*record
	for _, e := range entries {
		r, err := load(p.podDir(uid, e.Name()))
		if err != nil {
			return nil, err
		}
		if r != nil {
			r.Name = e.Name()
			list = append(list, r)
		}
	}
	return list, nil
}

// records returns the records of all pods.
func (p *Plugin) records() (map[types.UID][]*record, error) {
	pods, err := os.ReadDir(filepath.Join(p.options.Root, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := map[types.UID][]*record{}
	for _, pod := range pods {
		list, err := p.recordsOf(types.UID(pod.Name()))
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			all[types.UID(pod.Name())] = list
		}
	}
	return all, nil
}

// usedByOthers reports whether another pod has a record of the volume.
func (p *Plugin) usedByOthers(uid types.UID, r *record) (bool, error) {
	all, err := p.records()
	if err != nil {
		return false, err
	}
	for other, list := range all {
		for _, o := range list {
			if other != uid && o.Driver == r.Driver && o.Handle == r.Handle {
				return true, nil
			}
		}
	}
	return false, nil
}
