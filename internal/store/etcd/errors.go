package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	servererrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/raft/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"skiff/internal/store"
)

// etcd has two sets of errors for the same conditions: its server's and its client's.

func isNoSpace(err error) bool {
	return errors.Is(err, servererrors.ErrNoSpace) || errors.Is(err, rpctypes.ErrNoSpace)
}

func isLeaseNotFound(err error) bool {
	return errors.Is(err, lease.ErrLeaseNotFound) || errors.Is(err, rpctypes.ErrLeaseNotFound)
}

func isCompacted(err error) bool {
	return errors.Is(err, mvcc.ErrCompacted) || errors.Is(err, rpctypes.ErrCompacted)
}

func isFuture(err error) bool {
	return errors.Is(err, mvcc.ErrFutureRev) || errors.Is(err, rpctypes.ErrFutureRev)
}

func isTooLarge(err error) bool {
	if errors.Is(err, servererrors.ErrRequestTooLarge) || errors.Is(err, rpctypes.ErrRequestTooLarge) {
		return true
	}
	// gRPC's own limit, on either side.
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "message larger than max")
}

// neverSent reports whether an error occurred before the request reached Raft: it certainly was not applied.
func neverSent(err error) bool {
	for _, before := range []error{
		raft.ErrProposalDropped,
		servererrors.ErrNoLeader, rpctypes.ErrNoLeader,
		servererrors.ErrTooManyRequests, rpctypes.ErrTooManyRequests,
	} {
		if errors.Is(err, before) {
			return true
		}
	}
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.Unavailable {
		return false
	}
	for _, text := range []string{"Error while dialing", "no address available", "no connection available"} {
		if strings.Contains(s.Message(), text) {
			return true
		}
	}
	return false
}

// storeError returns the contract's error for err, or nil if it has none.
func storeError(err error) error {
	switch {
	case errors.Is(err, store.ErrFull), errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed):
		return err
	case isCompacted(err):
		return store.ErrCompacted
	case isFuture(err):
		return store.ErrFutureRevision
	case isTooLarge(err):
		return store.ErrTooLarge
	}
	return nil
}

// readError translates an error of a call that writes no key.
func (s *Store) readError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if known := storeError(err); known != nil {
		return known
	}
	if s.ctx.Err() != nil {
		return store.ErrClosed
	}
	return notWritten(ctx, err)
}

// notWritten translates the error of a call that failed before it could write.
func notWritten(ctx context.Context, err error) error {
	switch {
	case isNoSpace(err):
		return store.ErrFull
	case storeError(err) != nil:
		return storeError(err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %v", store.ErrUnavailable, err)
}

// writeError translates an error of a write. If the write may have happened it returns
// an error that is none of the contract's; etcd's own is quoted, not wrapped, so that its internal deadlines are
// not taken for the caller's.
func (s *Store) writeError(ctx context.Context, verb, key string, err error) error {
	switch {
	case storeError(err) != nil:
		return storeError(err)
	case neverSent(err):
		return fmt.Errorf("%w: %v", store.ErrUnavailable, err)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%s %q: it is unknown whether it was written: %v", verb, key, err)
}

// noSpaceError returns the error of a write that etcd answered with "no space": etcd does so for writes it refused, but also for
// the one write that exceeded the quota, which it has applied.
func (s *Store) noSpaceError(ctx context.Context, key string, ifRevision int64) error {
	current, _, err := s.Get(ctx, key)
	if err == nil || errors.Is(err, store.ErrNotFound) {
		if current.Revision == ifRevision {
			return store.ErrFull
		}
	}
	return fmt.Errorf("put %q: the database became full; it is unknown whether it was written", key)
}
