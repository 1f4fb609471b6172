package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Store keeps bytes under keys. Every successful write moves the store to the next revision; revisions are
// shared by all keys and only grow. Each write is one key: two keys never share a revision, so that a watch
// resumed after revision R has seen everything up to R.
//
// All methods are safe for concurrent use. A Store owns the slices it is given and those it returns: nobody
// may change their contents afterwards.
//
// An error that is neither one of this package's nor the context's means the outcome is unknown: the write
// may or may not have happened. Callers must not retry it.
type Store interface {
	// Get returns the newest version of key, as of some moment after the call began (a linearizable read).
	// If there is none it returns ErrNotFound. Either way the second result is the store's revision at the time of reading.
	Get(ctx context.Context, key string) (KV, int64, error)

	// List returns the keys that begin with prefix, in byte order.
	List(ctx context.Context, prefix string, opts ListOptions) (ListResult, error)

	// Put writes key and returns the revision of the write. The guard says what must hold for it to happen;
	// if it does not hold, the error is a *ConflictError and nothing changed.
	Put(ctx context.Context, key string, value []byte, opts PutOptions) (int64, error)

	// Delete removes key if its newest version has the given revision (or whatever it is, if AnyRevision)
	// and returns the revision of the removal. If the guard does not hold the error is a *ConflictError; if the
	// key does not exist, ErrNotFound.
	Delete(ctx context.Context, key string, ifRevision int64) (int64, error)

	// Watch reports every change to keys that begin with prefix, made after revision `after`, in order of
	// revision, each once. The channel is closed when ctx ends or the watch breaks; Err returns the reason.
	// If `after` lies before the last compaction the watch breaks with ErrCompacted at once.
	//
	// The reader must keep up: an engine may break the watch of a reader that lets it buffer without bound.
	Watch(ctx context.Context, prefix string, after int64) Watch

	// Revision returns the newest revision, linearizably: no write acknowledged before the call is newer.
	Revision(ctx context.Context) (int64, error)

	// Progress requests a progress report from every open watch that is up to date: a Batch whose Revision is at least
	// the store's revision at the time of this call, also when the last revisions changed nothing under its prefix.
	Progress(ctx context.Context) error

	// Compact drops the versions that were replaced or deleted at or before revision. Reads and
	// watches from before it fail with ErrCompacted. Compacting a compacted revision again is not an error.
	Compact(ctx context.Context, revision int64) error

	// Snapshot writes the whole store, consistent at one revision, in the format that the engine restores.
	Snapshot(ctx context.Context, w io.Writer) error

	// Close releases all resources. Calls in flight end with an error.
	Close() error
}

// AnyRevision as a guard lets a write happen whatever the state of the key.
const AnyRevision int64 = -1

// KV is one version of one key.
type KV struct {
	Key      string
	Value    []byte
	Revision int64 // the revision of the write that made this version
}

// ListOptions select a part of a prefix, now or in the past.
type ListOptions struct {
	Revision int64  // read as of this revision; 0 means now (linearizable)
	From     string // begin at this key (inclusive), if not empty; must begin with the prefix
	Limit    int64  // at most this many; 0 means all
	// Uncounted allows Count to be wrong, which spares an engine from visiting all keys of the selection for every page.
	Uncounted bool
}

// ListResult is one page of keys.
type ListResult struct {
	KVs      []KV
	Revision int64 // the revision the page was read at
	More     bool  // whether the limit cut the page short
	Count    int64 // number of keys in the selection (from From on) without the limit
}

// PutOptions guard a write and set the key's time to live.
type PutOptions struct {
	// IfRevision is the revision the key must have: 0 means it must not exist, AnyRevision that it may be anything.
	IfRevision int64
	// TTL, if not zero, lets the key expire about that long after the write (never earlier). An update without
	// a TTL makes the key permanent.
	TTL time.Duration
	// Class decides how soon the write is refused with ErrFull as the database fills up.
	Class Class
}

// Class is the importance of a write. An engine with a quota refuses the least important writes first, so that a flood of
// them does not stop the others. Deletes are never refused.
type Class int8

const (
	// Ordinary writes are refused before the quota is reached.
	Ordinary Class = iota
	// Disposable writes, such as events, are refused first.
	Disposable
	// Critical writes keep a cluster running and are refused only at the quota.
	Critical
)

// Watch is a stream of changes. Batches yields them until it is closed; then Err returns the reason.
type Watch interface {
	Batches() <-chan Batch
	Err() error
}

// Batch is a number of changes in order. With the batch every change up to Revision has been delivered. A
// batch without events only reports progress.
type Batch struct {
	Events   []Event
	Revision int64
}

// Event is one change of one key.
type Event struct {
	Key      string
	Value    []byte // nil if deleted
	Revision int64
	Deleted  bool
	Created  bool // whether the key did not exist before; meaningless if Deleted
}

var (
	// ErrNotFound: the key does not exist.
	ErrNotFound = errors.New("key not found")
	// ErrCompacted: the requested revision has been compacted.
	ErrCompacted = errors.New("revision has been compacted")
	// ErrFutureRevision: the requested revision is ahead of the store's.
	ErrFutureRevision = errors.New("revision is in the future")
	// ErrFull: the database has reached its size limit; reads and deletes still work.
	ErrFull = errors.New("the database is full: delete objects or raise its quota (--etcd-quota-backend-bytes)")
	// ErrTooLarge: the value is over the engine's limit.
	ErrTooLarge = errors.New("value is too large to store")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrUnavailable: the store cannot be reached or has no leader; nothing was written.
	ErrUnavailable = errors.New("store is unavailable")
)

// ConflictError is returned when a guard did not hold. It carries the key's current version.
type ConflictError struct {
	Key     string
	Current *KV // nil if the key does not exist
}

func (e *ConflictError) Error() string {
	if e.Current == nil {
		return fmt.Sprintf("key %q does not exist", e.Key)
	}
	return fmt.Sprintf("key %q is at revision %d", e.Key, e.Current.Revision)
}
