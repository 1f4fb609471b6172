package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

// checkpoint is what a kubelet that is started later has to know.
type checkpoint struct {
	Claims map[types.UID]*claim
}

func (m *Manager) path() string { return filepath.Join(m.options.Root, "dra_manager_state") }

// save writes the checkpoint, as a whole or not at all.
func (m *Manager) save() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, err := json.Marshal(checkpoint{m.claims})
	if err == nil {
		err = os.WriteFile(m.path()+".part", data, 0o600)
	}
	if err == nil {
		err = os.Rename(m.path()+".part", m.path())
	}
	if err != nil {
		return fmt.Errorf("failed to write which claims pods have: %w", err)
	}
	return nil
}

// restore reads the checkpoint.
func (m *Manager) restore() error {
	data, err := os.ReadFile(m.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var c checkpoint
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		return fmt.Errorf("failed to read which claims pods have (if no pod has any, remove %s): %w", m.path(), err)
	}
	if c.Claims != nil {
		m.claims = c.Claims
	}
	return nil
}
