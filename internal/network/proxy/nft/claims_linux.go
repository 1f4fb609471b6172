package nft

import (
	"hash/fnv"
	"slices"

	"skiff/internal/network/proxy/model"
)

// claims records which Port owns a frontend, and the numbers of Ports with session affinity. Two Services may want the same external address;
// the first one owns it until it releases it.
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

// claim makes a Port the owner of a frontend, or lets it wait if there is another owner.
func (c *claims) claim(f frontend, key model.Key) {
	owner, taken := c.owners[f]
	switch {
	case !taken:
		c.owners[f] = key
	case owner != key && !slices.Contains(c.waiting[f], key):
		c.waiting[f] = append(c.waiting[f], key)
	}
}

// release ends a Port's claim to a frontend. The next waiting Port becomes its owner.
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

// id returns the number of a Port. It is derived from the Port's name, so that it is the same after a restart.
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

func (c *claims) releaseID(key model.Key) {
	if id, ok := c.ids[key]; ok {
		delete(c.taken, id)
		delete(c.ids, key)
	}
}
