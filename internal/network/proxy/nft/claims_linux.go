package nft

import (
	"hash/fnv"
	"slices"

	"skiff/internal/network/proxy/model"
)

// claims are who has what that only one can have: frontends, and numbers, which Ports with session affinity need. Two Services may want the same external address; the first one
// has it for as long as it wants it.
type claims struct {
	owners  map[frontend]model.Key
	waiting map[frontend][]model.Key
	ids     map[model.Key]uint32
	taken   map[uint32]struct{}
}

func newClaims(size int) *claims {
	return &claims{
		owners: make(map[frontend]model.Key, size), waiting: map[frontend][]model.Key{},
		ids: map[model.Key]uint32{}, taken: map[uint32]struct{}{},
	}
}

func (c *claims) owns(key model.Key) func(frontend) bool {
	return func(f frontend) bool { return c.owners[f] == key }
}

// claim takes a frontend for a Port, or has it wait.
func (c *claims) claim(f frontend, key model.Key) {
	owner, taken := c.owners[f]
	switch {
	case !taken:
		c.owners[f] = key
	case owner != key && !slices.Contains(c.waiting[f], key):
		c.waiting[f] = append(c.waiting[f], key)
	}
}

// release gives a frontend to whoever waits for it.
func (c *claims) release(f frontend, key model.Key) {
	waiting := c.waiting[f]
	if c.owners[f] == key {
		if len(waiting) == 0 {
			delete(c.owners, f)
			return
		}
		c.owners[f] = waiting[0]
		waiting = waiting[1:]
	} else {
		waiting = slices.DeleteFunc(slices.Clone(waiting), func(k model.Key) bool { return k == key })
	}
	if len(waiting) == 0 {
		delete(c.waiting, f)
	} else {
		c.waiting[f] = waiting
	}
}

// id is the number of a Port. It follows from its name, so that it is the same after a restart.
func (c *claims) id(key model.Key) uint32 {
	id, ok := c.ids[key]
	if !ok {
		h := fnv.New32a()
		_, _ = h.Write([]byte(key.String()))
		for id = h.Sum32(); ; id++ {
			if _, taken := c.taken[id]; !taken {
				break
			}
		}
		c.ids[key] = id
		c.taken[id] = struct{}{}
	}
	return id
}

func (c *claims) forget(key model.Key) {
	if id, ok := c.ids[key]; ok {
		delete(c.taken, id)
		delete(c.ids, key)
	}
}
