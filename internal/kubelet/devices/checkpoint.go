package devices

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// checkpointName is the file with what containers have.
const checkpointName = "kubelet_internal_checkpoint"

// checkpoint is what a kubelet that is started later has to know.
type checkpoint struct {
	Pods      map[types.UID]map[string]containerDevices
	Resources []string // the resources of all plugins that have been here
}

// save writes the checkpoint, as a whole or not at all.
func (m *Manager) save() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, err := json.Marshal(checkpoint{Pods: m.pods, Resources: slices.Sorted(maps.Keys(m.resources))})
	if err != nil {
		return err
	}
	path := filepath.Join(m.options.Dir, checkpointName)
	if err := os.MkdirAll(m.options.Dir, 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", data, 0o600); err != nil {
		return fmt.Errorf("failed to write which devices containers have: %w", err)
	}
	return os.Rename(path+".part", path)
}

// restore reads the checkpoint. One that cannot be read is an error: devices could be given away twice.
func (m *Manager) restore() error {
	path := filepath.Join(m.options.Dir, checkpointName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var c checkpoint
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return fmt.Errorf("failed to read which devices containers have (if none has any, remove %s): %w", path, err)
	}
	if c.Pods != nil {
		m.pods = c.Pods
	}
	for _, name := range c.Resources {
		m.resources[name] = &plugin{devices: map[string]bool{}}
	}
	return nil
}
