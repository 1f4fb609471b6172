package memory

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"skiff/internal/store"
)

// magic is the first line of a snapshot. It is followed by numbers as varints and strings preceded by their length:
//
//	revision, number of keys, then per key: key, value, revision, expiry in Unix nanoseconds (0: permanent)
//
// and at the end the CRC-32 of all that, big endian.
const magic = "skiff memory store 1\n"

// restoreBump is how far a restored store is ahead of its snapshot, so that no revision from before the
// restore can be mistaken for one after it.
const restoreBump = 1_000_000_000

// Snapshot implements store.Store. Restore reads what it writes.
func (s *Store) Snapshot(ctx context.Context, w io.Writer) error {
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return store.ErrClosed
	}
	revision := s.revision
	type live struct {
		kv store.KV
		at int64
	}
	var all []live
	s.keys.Ascend(func(e *entry) bool {
		v := e.versions[len(e.versions)-1]
		if v.deleted {
			return true
		}
		var at int64
		if e.expiry != nil {
			at = e.expiry.at.UnixNano()
		}
		all = append(all, live{store.KV{Key: e.key, Value: v.value, Revision: v.revision}, at})
		return true
	})
	s.mu.RUnlock()

	sum := crc32.NewIEEE()
	out := bufio.NewWriter(io.MultiWriter(w, sum))
	var buf []byte
	buf = append(buf, magic...)
	buf = binary.AppendVarint(buf, revision)
	buf = binary.AppendVarint(buf, int64(len(all)))
	for _, l := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		buf = appendBytes(buf, l.kv.Key)
		buf = appendBytes(buf, l.kv.Value)
		buf = binary.AppendVarint(buf, l.kv.Revision)
		buf = binary.AppendVarint(buf, l.at)
		if _, err := out.Write(buf); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
		buf = buf[:0]
	}
	if _, err := out.Write(buf); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	if _, err := w.Write(sum.Sum(nil)); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

func appendBytes[T string | []byte](buf []byte, data T) []byte {
	buf = binary.AppendVarint(buf, int64(len(data)))
	return append(buf, data...)
}

// Restore returns a store with the keys of a snapshot. Its revision lies far ahead of the snapshot's and everything
// before it counts as compacted, so that no watch continues across the restore.
func Restore(r io.Reader, opts Options) (*Store, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	body, err := verifyChecksum(data)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	d := decoder{rest: body}
	s := newStore(opts, d.int()+restoreBump)
	s.compacted = s.revision
	for count := d.int(); count > 0 && d.err == nil; count-- {
		e := &entry{key: string(d.bytes())}
		e.versions = []version{{value: d.bytes(), revision: d.int()}}
		at := d.int()
		if d.err != nil {
			break
		}
		s.keys.ReplaceOrInsert(e)
		if at != 0 {
			s.mu.Lock()
			s.expireAt(e, time.Unix(0, at))
			s.mu.Unlock()
		}
	}
	if d.err != nil {
		s.Close()
		return nil, fmt.Errorf("read snapshot: %w", d.err)
	}
	return s, nil
}

// verifyChecksum verifies a snapshot and returns what lies between its first line and its checksum.
func verifyChecksum(data []byte) ([]byte, error) {
	if len(data) < len(magic)+crc32.Size || string(data[:len(magic)]) != magic {
		return nil, errors.New("not a snapshot of a memory store")
	}
	end := len(data) - crc32.Size
	if binary.BigEndian.Uint32(data[end:]) != crc32.ChecksumIEEE(data[:end]) {
		return nil, errors.New("checksum does not match: the snapshot is damaged or cut short")
	}
	return data[len(magic):end], nil
}

type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) int() int64 {
	n, size := binary.Varint(d.rest)
	if size <= 0 {
		d.err, d.rest = io.ErrUnexpectedEOF, nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) bytes() []byte {
	n := d.int()
	if n < 0 || n > int64(len(d.rest)) {
		d.err, d.rest = io.ErrUnexpectedEOF, nil
		return nil
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}
