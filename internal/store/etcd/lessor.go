package etcd

import (
	"sync"
	"unsafe"

	"go.etcd.io/etcd/server/v3/lease"
)

// leaseKeys is etcd's lessor except for how it stores the keys of a lease: etcd's own holds a second copy of every key and two maps, which for
// Events, the only keys with leases, was a third of the memory of a key.
//
// The keys of a lease are attached in etcd's lessor only when the lease is revoked, which deletes them and the lease in one transaction.
type leaseKeys struct {
	lease.Lessor

	// writing is the key of the change that is being applied: the index of keys holds these bytes, so that sharing them here costs no memory. Only
	// singleMember.apply sets it.
	writing []byte

	mu       sync.Mutex
	leaseOf  map[string]lease.LeaseID
	keys     map[lease.LeaseID][]string // the attached keys, in order; some may have been detached since
	revoking lease.LeaseID
	most     int // highest number of keys in leaseOf since the map was made
}

// minLeased is the number of keys below which leaseOf is not copied to release memory.
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
			key = unsafe.String(unsafe.SliceData(l.writing), len(l.writing)) // a key that was given to the store is never changed
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
