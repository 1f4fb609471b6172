package etcd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// changeLog is the log of a lone member: etcd's write-ahead log, holding changes instead of Raft's entries. Changes are numbered
// without gaps; a mark in the log (etcd calls it a snapshot) says from where on it is complete.
type changeLog struct {
	logger *zap.Logger
	dir    string
	wal    *wal.WAL
	term   uint64
	last   uint64 // number of the last change
	grown  int    // bytes since the last mark
}

// numbered is a change with its place in the log.
type numbered struct {
	number uint64
	*change
}

// openLog opens the log of a database that holds all changes up to a number, and returns those after it.
func openLog(logger *zap.Logger, dir string, applied, term uint64) (_ *changeLog, missing []numbered, err error) {
	shrinkWAL()
	g := &changeLog{logger: logger, dir: dir, term: term, last: applied}
	defer func() {
		if err != nil && g.wal != nil {
			err = errors.Join(err, g.wal.Close())
		}
	}()
	if !wal.Exist(dir) {
		return g, nil, g.create()
	}
	begins, entries, err := g.open()
	if err != nil {
		return nil, nil, err
	}
	switch ends := begins + uint64(len(entries)); {
	case begins > applied:
		return nil, nil, fmt.Errorf("the database holds changes up to %d and its log only those after %d: one of them is not the other's", applied, begins)
	case ends < applied:
		// A process was killed when it had made the log, and had not said yet where it begins.
		if err := errors.Join(g.wal.Close(), os.RemoveAll(dir)); err != nil {
			return nil, nil, err
		}
		return g, nil, g.create()
	default:
		g.last = ends
	}
	for _, entry := range entries[applied-begins:] {
		c, err := decodeChange(entry.Data)
		if err != nil {
			return nil, nil, fmt.Errorf("read change %d from the log: %w", entry.GetIndex(), err)
		}
		missing = append(missing, numbered{entry.GetIndex(), c})
	}
	return g, missing, nil
}

// create begins an empty log after the last change.
func (g *changeLog) create() (err error) {
	if g.wal, err = wal.Create(g.logger, g.dir, nil); err != nil {
		return fmt.Errorf("create the log: %w", err)
	}
	return g.mark(g.last)
}

// open opens the log for writing, and returns what comes after its last mark. What a crash left half written is cut off: nobody
// was told that it was written.
func (g *changeLog) open() (begins uint64, entries []*raftpb.Entry, err error) {
	marks, err := wal.ValidSnapshotEntries(g.logger, g.dir)
	if err != nil {
		return 0, nil, fmt.Errorf("read the log: %w", err)
	}
	if len(marks) == 0 {
		return 0, nil, errors.New("read the log: it does not say where it begins")
	}
	mark := marks[len(marks)-1]
	for repaired := false; ; repaired = true {
		w, err := wal.Open(g.logger, g.dir, mark)
		if err != nil {
			return 0, nil, fmt.Errorf("open the log: %w", err)
		}
		_, _, entries, err := w.ReadAll()
		if err == nil {
			g.wal = w
			return mark.GetIndex(), entries, nil
		}
		w.Close()
		if repaired || !errors.Is(err, io.ErrUnexpectedEOF) || !wal.Repair(g.logger, g.dir) {
			return 0, nil, fmt.Errorf("read the log: %w", err)
		}
	}
}

// append writes changes and returns when they are on disk. It returns the number of the first.
func (g *changeLog) append(changes []*change) (first uint64, err error) {
	first = g.last + 1
	if len(changes) == 0 {
		return first, nil
	}
	entries := make([]*raftpb.Entry, len(changes))
	for i, c := range changes {
		g.last++
		entries[i] = &raftpb.Entry{Index: new(g.last), Term: &g.term, Data: c.encode()}
		g.grown += len(entries[i].Data)
	}
	return first, g.wal.Save(nil, entries)
}

// mayTrim is true whenever the log has grown by half a file.
func (g *changeLog) mayTrim() bool { return g.grown >= walSegmentBytes/2 }

// trim removes files that hold nothing but changes up to the given one, and says how many are left.
func (g *changeLog) trim(saved uint64) (left int, err error) {
	if err := g.mark(saved); err != nil {
		return 0, err
	}
	g.grown = 0
	return g.removeUpTo(saved)
}

// mark says that the log is complete after a change, and needed from there on only.
func (g *changeLog) mark(number uint64) error {
	if number == 0 {
		return nil
	}
	if err := g.wal.Save(&raftpb.HardState{Term: &g.term, Commit: &number}, nil); err != nil {
		return err
	}
	return g.wal.SaveSnapshot(&walpb.Snapshot{Index: &number, Term: &g.term, ConfState: &raftpb.ConfState{}})
}

// removeUpTo removes the files before the one that holds what follows a change. Their names say with which change they begin.
func (g *changeLog) removeUpTo(number uint64) (left int, err error) {
	if err := g.wal.ReleaseLockTo(number); err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(g.dir)
	if err != nil {
		return 0, err
	}
	var names []string
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".wal") {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	for len(names) > 1 {
		var sequence, begins uint64
		if _, err := fmt.Sscanf(names[1], "%016x-%016x.wal", &sequence, &begins); err != nil {
			return 0, fmt.Errorf("%s: %w", names[1], err)
		}
		if begins >= number {
			break
		}
		if err := os.Remove(filepath.Join(g.dir, names[0])); err != nil {
			return 0, err
		}
		names = names[1:]
	}
	return len(names), nil
}

func (g *changeLog) close() error { return g.wal.Close() }
