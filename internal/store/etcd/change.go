package etcd

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"

	"skiff/internal/store"
)

// change is a write to one key, or to a lease.
type change struct {
	kind       kind
	key, value []byte
	ifRevision int64       // the guard of a write, as in package store
	lease      int64       // the lease that a key is attached to, or that is granted or revoked; 0 for none
	seconds    int64       // the TTL of a granted lease
	class      store.Class // not part of the log: a change in the log has been accepted
}

type kind byte

const (
	kindPut kind = iota + 1
	kindDelete
	kindGrant
	kindRevoke
)

// writeResult is the result of a write that did not fail.
type writeResult struct {
	revision int64     // the revision of the write; 0 if the guard did not hold, or there was nothing to delete
	current  *store.KV // the current version if the guard did not hold, nil if the key does not exist
}

// size returns about how many bytes the change takes in the log; 0 if it is nil.
func (c *change) size() int {
	if c == nil {
		return 0
	}
	return 64 + len(c.key) + len(c.value)
}

// encode returns the change as it is stored in the log.
func (c *change) encode() []byte {
	b := make([]byte, 0, c.size())
	b = append(b, byte(c.kind))
	b = binary.AppendVarint(b, c.ifRevision)
	b = binary.AppendVarint(b, c.lease)
	b = binary.AppendVarint(b, c.seconds)
	b = binary.AppendUvarint(b, uint64(len(c.key)))
	b = append(b, c.key...)
	return append(b, c.value...)
}

var errCutShort = errors.New("it is cut short")

func decodeChange(b []byte) (*change, error) {
	if len(b) == 0 {
		return nil, errCutShort
	}
	c := &change{kind: kind(b[0])}
	if c.kind < kindPut || c.kind > kindRevoke {
		return nil, fmt.Errorf("it is of kind %d, which is not known", c.kind)
	}
	b = b[1:]
	for _, number := range []*int64{&c.ifRevision, &c.lease, &c.seconds} {
		n := 0
		if *number, n = binary.Varint(b); n <= 0 {
			return nil, errCutShort
		}
		b = b[n:]
	}
	length, n := binary.Uvarint(b)
	if n <= 0 || length > uint64(len(b)-n) {
		return nil, errCutShort
	}
	b = b[n:]
	// The key stays in memory for as long as it exists; cloned, it does not keep the value there with it.
	c.key, c.value = bytes.Clone(b[:length]), b[length:]
	return c, nil
}

// newLeaseID returns a random ID; granting one that exists is refused.
func newLeaseID() int64 { return rand.Int64N(1<<62) + 1 }
