package attachdetach

import (
	"sync"
	"time"
)

// memory holds what cannot be observed: when a detach was asked for first, what has been told, and which volumes are being attached. It is bounded by the
// VolumeAttachments that there are, and those that pods wait for.
type memory struct {
	mu     sync.Mutex
	nodes  map[string]*ofNode
	taking map[string]string // volumes that only one node may have and whose VolumeAttachment has not been observed yet: the node, by PersistentVolume
}

// ofNode is what is remembered of a node, by name of the VolumeAttachment.
type ofNode struct {
	unwanted map[string]time.Time // since when no pod wants the volume
	told     map[string]string    // the last Event about it
}

// begin returns what is remembered of a node. What it was taking has been observed, or was not taken.
func (m *memory) begin(seen observed) *ofNode {
	m.mu.Lock()
	defer m.mu.Unlock()
	for v, node := range m.taking {
		if node == seen.name {
			delete(m.taking, v)
		}
	}
	of := m.nodes[seen.name]
	if of == nil {
		of = &ofNode{unwanted: map[string]time.Time{}, told: map[string]string{}}
	}
	for name := range of.unwanted {
		if _, there := seen.attached[name]; !there || seen.wanted[name] != nil {
			delete(of.unwanted, name)
		}
	}
	for name := range of.told {
		if seen.wanted[name] == nil {
			delete(of.told, name)
		}
	}
	return of
}

// end keeps what is to be remembered of a node.
func (m *memory) end(name string, of *ofNode) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(of.unwanted) == 0 && len(of.told) == 0 {
		delete(m.nodes, name)
		return
	}
	if m.nodes == nil {
		m.nodes = map[string]*ofNode{}
	}
	m.nodes[name] = of
}

// take reports whether a node may attach a volume that only one node may have; free looks whether it is attached to another one.
func (m *memory) take(volume, node string, free func() bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if other, ok := m.taking[volume]; ok && other != node || !free() {
		return false
	}
	if m.taking == nil {
		m.taking = map[string]string{}
	}
	m.taking[volume] = node
	return true
}

// leave ends what take began, as the volume was not attached.
func (m *memory) leave(volume, node string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.taking[volume] == node {
		delete(m.taking, volume)
	}
}
