package etcd

import (
	"sync"
	"unsafe"

	"go.etcd.io/etcd/server/v3/lease"
)

// leaseKeys is etcd's lessor, but for how it remembers which keys a lease has: etcd's own holds a second copy of every key and two maps, which for
// Events, the only keys with leases, was a third of all that a key takes in memory.
//
// The keys of a lease are handed to etcd's lessor when it is revoked, which deletes them and the lease in one transaction.
type leaseKeys struct {
	lease.Lessor

	// writing is the key of the change that is being applied: the index of keys holds these bytes, so that they can be held here for nothing. Only
	// who applies changes sets it.
	writing []byte

	mu       sync.Mutex
	leaseOf  map[string]lease.LeaseID
	keys     map[lease.LeaseID][]string // what was attached, in order; some of it may have been detached since
	revoking lease.LeaseID
	most     int // keys that leaseOf had since it was made
}

// minLeased is the number of keys below which the map of them is not made anew to give back memory.
const minLeased = 1024

func newLeaseKeys(l lease.Lessor) *leaseKeys {
	return &leaseKeys{Lessor: l, leaseOf: map[string]lease.LeaseID{}, keys: map[lease.LeaseID][]string{}}
}

// Attach implements lease.Lessor.
func (l *leaseKeys) Attach(id lease.LeaseID, items []lease.LeaseItem) error {
	if l.Lookup(id) == nil {
		return lease.ErrLeaseNotFound
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, it := range items {
		if l.leaseOf[it.Key] == id {
			continue
		}
		key := it.Key
		if key == string(l.writing) {
			key = unsafe.String(unsafe.SliceData(l.writing), len(l.writing)) // nobody changes a key that was given to the store
		}
		l.leaseOf[key] = id
		l.keys[id] = append(l.keys[id], key)
	}
	l.most = max(l.most, len(l.leaseOf))
	return nil
}

// GetLease implements lease.Lessor.
func (l *leaseKeys) GetLease(item lease.LeaseItem) lease.LeaseID {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaseOf[item.Key] // lease.NoLease is 0
}

// Detach implements lease.Lessor.
func (l *leaseKeys) Detach(id lease.LeaseID, items []lease.LeaseItem) error {
	if l.Lookup(id) == nil {
		return lease.ErrLeaseNotFound
	}
	l.mu.Lock()
	for _, it := range items {
		if l.leaseOf[it.Key] == id {
			delete(l.leaseOf, it.Key)
		}
	}
	revoking := l.revoking == id
	l.mu.Unlock()
	if revoking {
		return l.Lessor.Detach(id, items)
	}
	return nil
}

// Revoke implements lease.Lessor.
func (l *leaseKeys) Revoke(id lease.LeaseID) error {
	if err := l.Lessor.Attach(id, l.beginRevoke(id)); err != nil {
		l.endRevoke(id)
		return err
	}
	err := l.Lessor.Revoke(id)
	l.endRevoke(id)
	return err
}

// beginRevoke returns the keys that a lease still has.
func (l *leaseKeys) beginRevoke(id lease.LeaseID) []lease.LeaseItem {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revoking = id
	items := make([]lease.LeaseItem, 0, len(l.keys[id]))
	for _, key := range l.keys[id] {
		if l.leaseOf[key] == id {
			items = append(items, lease.LeaseItem{Key: key})
		}
	}
	return items
}

func (l *leaseKeys) endRevoke(id lease.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revoking = lease.NoLease
	delete(l.keys, id)
	if l.most < minLeased || len(l.leaseOf) > l.most/4 {
		return
	}
	fewer := make(map[string]lease.LeaseID, len(l.leaseOf)) // a map does not become smaller by itself
	for key, id := range l.leaseOf {
		fewer[key] = id
	}
	l.leaseOf, l.most = fewer, len(fewer)
}
