package etcd

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// restoreBump is how far the restored store's revision is ahead of its snapshot's: farther than the cluster can have got since the
// snapshot was taken, so that no revision that a client still holds has a second meaning.
const restoreBump = 1_000_000_000

// Restore makes a data directory for Embed from a snapshot. The directory must not exist, or be empty. Everything
// before the restored revision counts as compacted, so that clients relist instead of resuming a watch.
//
// The directory holds only the database, without the membership of the cluster it was part of: Embed starts a new cluster with
// it.
func Restore(snapshotFile, dir string) error {
	if err := restore(snapshotFile, dir); err != nil {
		return fmt.Errorf("restore %s into %s: %w", snapshotFile, dir, err)
	}
	return nil
}

func restore(snapshotFile, dir string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return errors.New("the directory is not empty: move it away first")
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := makeDurable(filepath.Dir(dir)); err != nil {
		return err
	}
	// Made under another name and renamed, so that the directory is never incomplete.
	draft, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".restoring-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(draft)
	path := filepath.Join(draft, "member", "snap", "db")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := copyVerified(snapshotFile, path); err != nil {
		return err
	}
	if err := detach(path, restoreBump); err != nil {
		return err
	}
	for _, made := range []string{filepath.Dir(path), filepath.Dir(filepath.Dir(path)), draft} {
		if err := syncDir(made); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(draft, dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// copyVerified copies the database in a snapshot, which is a number of pages followed by their SHA-256, and verifies the checksum.
func copyVerified(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	size := info.Size() - sha256.Size
	if size <= 0 || size%512 != 0 {
		return errors.New("not a snapshot, or cut short: it does not end in a checksum")
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(out, sum), in, size); err != nil {
		return err
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(in, want); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return errors.New("the checksum does not match: the snapshot is damaged")
	}
	return errors.Join(out.Sync(), out.Close())
}

// detach removes the cluster's members and the consistent index from a database, and raises its revision by bump.
func detach(path string, bump int64) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		keys, meta := tx.Bucket(schema.Key.Name()), tx.Bucket(schema.Meta.Name())
		if keys == nil || meta == nil {
			return errors.New("not an etcd database")
		}
		for _, bucket := range [][]byte{schema.Members.Name(), schema.MembersRemoved.Name(), schema.Cluster.Name(), schema.Alarm.Name()} {
			if err := tx.DeleteBucket(bucket); err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
				return err
			}
		}
		for _, key := range [][]byte{schema.MetaConsistentIndexKeyName, schema.MetaTermKeyName, schema.MetaConfStateName} {
			if err := meta.Delete(key); err != nil {
				return err
			}
		}
		if bump == 0 {
			return nil
		}
		ahead := newestRevision(keys, meta) + bump
		// etcd starts at the revision of a scheduled compaction if it is ahead of all keys, and then performs it.
		return meta.Put(schema.ScheduledCompactKeyName, mvcc.RevToBytes(mvcc.Revision{Main: ahead}, mvcc.NewRevBytes()))
	})
	return errors.Join(err, db.Close())
}

// newestRevision returns the revision of the last key, or of the last compaction if that removed it.
func newestRevision(keys, meta *bolt.Bucket) int64 {
	newest := int64(1)
	if last, _ := keys.Cursor().Last(); last != nil {
		newest = max(newest, mvcc.BytesToRev(last).Main)
	}
	for _, name := range [][]byte{schema.ScheduledCompactKeyName, schema.FinishedCompactKeyName} {
		if compacted := meta.Get(name); compacted != nil {
			newest = max(newest, mvcc.BytesToRev(compacted).Main)
		}
	}
	return newest
}
