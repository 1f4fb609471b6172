package etcd

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// changeLog is the log of a singleMember: etcd's write-ahead log, holding changes instead of Raft's entries. Changes are numbered
// without gaps; a mark in the log (a snapshot record of etcd's) says after which change it is complete.
//
// Each batch begins with a state record that names the log and the last change that was synced before the batch. Found after a record
// that cannot be read, it proves that the record was synced once, and that the log is damaged rather than cut short (logscan.go).
type changeLog struct {
	logger         *zap.Logger
	dir            string
	wal            *wal.WAL
	id             uint64 // a random number, written in every state record
	term           uint64
	last           uint64 // number of the last change
	bytesSinceMark int    // bytes written since the last mark
}

// numberedChange is a change with its number in the log.
type numberedChange struct {
	number uint64
	*change
}

// openLog opens the log of a database that holds all changes up to a number, and returns those after it.
func openLog(logger *zap.Logger, dir string, applied, term uint64) (opened *changeLog, missing []numberedChange, err error) {
	setWALSegmentSize()
	g := &changeLog{logger: logger, dir: dir, id: rand.Uint64() | 1, term: term, last: applied}
	defer func() {
		if err != nil {
			opened = nil
			if g.wal != nil {
				err = errors.Join(err, g.wal.Close())
			}
		}
	}()
	if !wal.Exist(dir) {
		return g, nil, g.create()
	}
	scan, err := scanLog(dir)
	if err != nil {
		return nil, nil, withAdvice(fmt.Errorf("read the log: %w", err), dir, applied)
	}
	begins := scan.mark.GetIndex()
	switch {
	case applied > 0 && begins == 0 && scan.states == 0 && scan.entries == 0:
		// The log was created and the process stopped before anything was written to it: it never held a change.
		logger.Warn("replacing a log that was created but never written to", zap.String("path", dir), zap.Uint64("applied", applied))
		if err := os.RemoveAll(dir); err != nil {
			return nil, nil, err
		}
		return g, nil, g.create()
	case begins > applied:
		err := fmt.Errorf("the database holds changes up to %d and its log only those after %d: they do not belong together", applied, begins)
		return nil, nil, withAdvice(err, dir, applied)
	case scan.last < applied:
		// The log is synced before the database is written: whatever the database holds was in the log.
		err := fmt.Errorf("the database holds changes up to %d and its log ends with %d: the disk lost what it had synced, or they do not belong together", applied, scan.last)
		return nil, nil, withAdvice(err, dir, applied)
	}
	entries, err := g.open(scan)
	if err != nil {
		return nil, nil, withAdvice(fmt.Errorf("read the log: %w", err), dir, applied)
	}
	for _, entry := range entries[applied-begins:] {
		c, err := decodeChange(entry.Data)
		if err != nil {
			return nil, nil, withAdvice(fmt.Errorf("read change %d from the log: %w", entry.GetIndex(), err), dir, applied)
		}
		missing = append(missing, numberedChange{entry.GetIndex(), c})
	}
	return g, missing, g.begin()
}

// create creates an empty log that begins after the last change.
func (g *changeLog) create() (err error) {
	if g.wal, err = wal.Create(g.logger, g.dir, nil); err != nil {
		return fmt.Errorf("create the log: %w", err)
	}
	if err := syncDir(g.dir); err != nil {
		return err
	}
	if g.last > 0 {
		if err := g.saveMark(g.last); err != nil {
			return err
		}
	}
	return g.wal.Save(g.state(), nil)
}

// open opens the log for writing and returns the entries after its last mark. A record that was written only in part is removed: it was
// never acknowledged.
func (g *changeLog) open(scan *logScan) (entries []*raftpb.Entry, err error) {
	if scan.torn {
		g.logger.Warn("removing the end of the log, which was being written when the process or the machine stopped",
			zap.String("path", scan.file), zap.Int64("offset", scan.end), zap.Uint64("lastChange", scan.last))
		if err := truncate(scan.file, scan.end); err != nil {
			return nil, err
		}
	}
	if g.wal, err = wal.Open(g.logger, g.dir, scan.mark); err != nil {
		return nil, err
	}
	if _, _, entries, err = g.wal.ReadAll(); err != nil {
		return nil, err
	}
	if ends := scan.mark.GetIndex() + uint64(len(entries)); ends != scan.last {
		return nil, fmt.Errorf("it holds changes up to %d, and up to %d when read again", scan.last, ends)
	}
	g.last = scan.last
	if scan.id != 0 {
		g.id = scan.id
	}
	return entries, nil
}

// begin syncs the log before its changes are replayed: a killed process may have left them only in the page cache.
func (g *changeLog) begin() error {
	if err := errors.Join(g.wal.Sync(), syncDir(g.dir)); err != nil {
		return fmt.Errorf("sync the log: %w", err)
	}
	return g.wal.Save(g.state(), nil)
}

// state returns the record that says how far the log is synced.
func (g *changeLog) state() *raftpb.HardState {
	return &raftpb.HardState{Term: new(g.term), Vote: new(g.id), Commit: new(g.last)}
}

// truncate truncates a file and syncs it.
func truncate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Sync(), f.Close())
}

// append writes changes to the log, syncs it, and returns the number of the first change.
func (g *changeLog) append(changes []*change) (first uint64, err error) {
	first = g.last + 1
	if len(changes) == 0 {
		return first, nil
	}
	if err := g.wal.Save(g.state(), nil); err != nil { // synced together with the changes
		return 0, err
	}
	entries := make([]*raftpb.Entry, len(changes))
	for i, c := range changes {
		g.last++
		entries[i] = &raftpb.Entry{Index: new(g.last), Term: &g.term, Data: c.encode()}
		g.bytesSinceMark += len(entries[i].Data)
	}
	return first, g.wal.Save(nil, entries)
}

// mayTrim reports whether the log has grown by half a file since the last mark.
func (g *changeLog) mayTrim() bool { return g.bytesSinceMark >= walSegmentBytes/2 }

// trim removes files that hold only changes up to the given one, and returns the number of files left.
func (g *changeLog) trim(saved uint64) (left int, err error) {
	if err := g.mark(saved); err != nil {
		return 0, err
	}
	g.bytesSinceMark = 0
	return g.removeUpTo(saved)
}

// mark writes a record that the log is complete after a change, and needed only from there on.
func (g *changeLog) mark(number uint64) error {
	if number == 0 {
		return nil
	}
	if err := g.wal.Save(g.state(), nil); err != nil {
		return err
	}
	return g.saveMark(number)
}

func (g *changeLog) saveMark(number uint64) error {
	return g.wal.SaveSnapshot(&walpb.Snapshot{Index: &number, Term: &g.term, ConfState: &raftpb.ConfState{}})
}

// removeUpTo removes the files before the one that holds the change after a number, and returns the number of files left. A file's name contains the
// number of its first change.
func (g *changeLog) removeUpTo(number uint64) (left int, err error) {
	if err := g.wal.ReleaseLockTo(number); err != nil {
		return 0, err
	}
	names, err := logFiles(g.dir)
	if err != nil {
		return 0, err
	}
	before := len(names)
	for len(names) > 1 {
		_, begins, err := parseLogFile(names[1])
		if err != nil {
			return 0, err
		}
		if begins >= number {
			break
		}
		if err := os.Remove(filepath.Join(g.dir, names[0])); err != nil {
			return 0, err
		}
		names = names[1:]
	}
	if len(names) < before {
		return len(names), syncDir(g.dir)
	}
	return len(names), nil
}

func (g *changeLog) close() error { return g.wal.Close() }
