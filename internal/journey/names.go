package journey

import (
	"strings"
	"sync"
	"sync/atomic"
)

// A nameID is the number of an interned string: a verb, a resource or a stage.
type nameID uint16

const (
	maxNames      = 1024 // includes the resources of CustomResourceDefinitions
	maxNameLength = 128
	otherNames    = "(other)" // the name in place of all names beyond the limits
)

// names interns strings. Looking up a known string takes no lock; a new one copies the table, which happens a few hundred times in
// the life of a server.
type names struct {
	table atomic.Pointer[nameTable]
	mu    sync.Mutex // held while adding
}

type nameTable struct {
	ids   map[string]nameID
	names []string
}

func (n *names) id(name string) nameID {
	if t := n.table.Load(); t != nil {
		if id, ok := t.ids[name]; ok {
			return id
		}
	}
	return n.add(name)
}

func (n *names) add(name string) nameID {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := n.table.Load()
	if old == nil {
		old = &nameTable{ids: map[string]nameID{otherNames: 0}, names: []string{otherNames}}
	}
	if id, ok := old.ids[name]; ok {
		return id
	}
	if len(old.names) >= maxNames || len(name) > maxNameLength {
		return 0
	}
	t := &nameTable{ids: make(map[string]nameID, len(old.ids)+1), names: make([]string, len(old.names), len(old.names)+1)}
	copy(t.names, old.names)
	for k, v := range old.ids {
		t.ids[k] = v
	}
	id, name := nameID(len(t.names)), strings.Clone(name)
	t.ids[name] = id
	t.names = append(t.names, name)
	n.table.Store(t)
	return id
}

func (n *names) name(id nameID) string {
	if t := n.table.Load(); t != nil && int(id) < len(t.names) {
		return t.names[id]
	}
	return otherNames
}
