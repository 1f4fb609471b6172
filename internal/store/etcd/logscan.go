package etcd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

const (
	sectorBytes = 512
	// maxRecordBytes bounds the length field of a record: a change of MaxRequestBytes and what the log adds to it.
	maxRecordBytes = MaxRequestBytes + 4096
	// maxStateBytes bounds a state record.
	maxStateBytes = 128
)

// logScan is the result of a scan of the log's files. etcd's own reader ends at the first record that looks torn and drops
// what follows; this one also decides whether what follows was synced, and therefore acknowledged.
type logScan struct {
	id      uint64          // the log's id; 0 if no record names one
	mark    *walpb.Snapshot // the last mark
	first   uint64          // number of the first change of the oldest file
	last    uint64          // number of the last whole change, or of the last mark if there is no change after it
	entries int
	states  int

	file string // path of the newest file
	end  int64  // offset in file after the last whole record
	torn bool   // whether file holds a partly written record after end
}

// scanLog reads all files of a log. A record that was being written when the process or the machine stopped ends the log; any
// other damage is a *damagedLogError.
func scanLog(dir string) (*logScan, error) {
	names, err := logFiles(dir)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, &damagedLogError{path: dir, problem: "the directory of the log holds no file of it"}
	}
	s := &logScan{mark: &walpb.Snapshot{Index: new(uint64(0)), Term: new(uint64(0))}}
	if _, s.first, err = parseLogFile(names[0]); err != nil {
		return nil, err
	}
	crc := uint32(0)
	for i, name := range names {
		if crc, err = s.scanFile(filepath.Join(dir, name), crc, i == len(names)-1); err != nil {
			return nil, err
		}
	}
	if s.mark.GetIndex()+1 < s.first && s.first > 0 {
		return nil, &damagedLogError{path: dir, problem: fmt.Sprintf("its oldest file begins with change %d and its last mark is %d", s.first, s.mark.GetIndex())}
	}
	return s, nil
}

// logFiles returns the names of the log's files that follow one another without a gap, up to the newest. Files before a gap
// are not needed: their removal was cut short.
func logFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), ".wal") {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	for i := len(names) - 1; i > 0; i-- {
		newer, _, err := parseLogFile(names[i])
		if err != nil {
			return nil, err
		}
		older, _, err := parseLogFile(names[i-1])
		if err != nil {
			return nil, err
		}
		if older+1 != newer {
			return names[i:], nil
		}
	}
	return names, nil
}

// parseLogFile returns the sequence number of a log file and the number of its first change.
func parseLogFile(name string) (sequence, begins uint64, err error) {
	if _, err := fmt.Sscanf(name, "%016x-%016x.wal", &sequence, &begins); err != nil {
		return 0, 0, fmt.Errorf("%s is not the name of a file of the log: %w", name, err)
	}
	return sequence, begins, nil
}

// scanFile reads one file. crc is the checksum of the records before it.
func (s *logScan) scanFile(path string, crc uint32, newest bool) (uint32, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	decoder := wal.NewDecoder(fileutil.NewFileReader(f))
	rec := &walpb.Record{}
	for {
		s.file, s.end = path, decoder.LastOffset()
		err := decoder.Decode(rec)
		if err == nil {
			err = s.addRecord(rec, decoder, crc)
		}
		if err == nil {
			continue
		}
		if !newest {
			// A file is truncated to its length and synced before the next one is created.
			if errors.Is(err, io.EOF) && s.end == info.Size() {
				return decoder.LastCRC(), nil
			}
			return 0, &damagedLogError{path: path, offset: s.end, problem: "a record before the end of the log cannot be read", cause: err}
		}
		return 0, s.checkEnd(f, info.Size(), err)
	}
}

// addRecord adds one record to the scan. A record's checksum covers only its data: a damaged type is found
// by fields that a record of that type does not have.
func (s *logScan) addRecord(rec *walpb.Record, decoder wal.Decoder, crcBefore uint32) error {
	if len(rec.ProtoReflect().GetUnknown()) > 0 {
		return errWrongFields
	}
	switch rec.GetType() {
	case wal.CrcType:
		// The first file in the directory need not be the first of the log: older files were removed.
		if before := decoder.LastCRC(); before != 0 && rec.GetCrc() != before || crcBefore != 0 && rec.GetCrc() != crcBefore || len(rec.Data) > 0 {
			return walpb.ErrCRCMismatch
		}
		decoder.UpdateCRC(rec.GetCrc())
	case wal.MetadataType:
		if len(rec.Data) > 0 { // none is ever written
			return errWrongFields
		}
	case wal.EntryType:
		var entry raftpb.Entry
		if err := unmarshalExactly(rec.Data, &entry); err != nil {
			return err
		}
		if s.entries > 0 && entry.GetIndex() != s.last+1 {
			return fmt.Errorf("change %d follows change %d", entry.GetIndex(), s.last)
		}
		s.entries++
		s.last = entry.GetIndex()
	case wal.StateType:
		var state raftpb.HardState
		if err := unmarshalExactly(rec.Data, &state); err != nil {
			return err
		}
		if id := state.GetVote(); id != 0 {
			if s.id != 0 && s.id != id {
				return fmt.Errorf("a record is of log %x, others are of %x", id, s.id)
			}
			s.id = id
		}
		s.states++
	case wal.SnapshotType:
		var mark walpb.Snapshot
		if err := unmarshalExactly(rec.Data, &mark); err != nil {
			return err
		}
		s.mark = &mark
		if s.entries == 0 {
			s.last = mark.GetIndex()
		}
	default:
		return fmt.Errorf("a record is of type %d, which is not known", rec.GetType())
	}
	return nil
}

var errWrongFields = errors.New("a record holds fields that it should not")

// unmarshalExactly decodes a message and returns an error for unknown fields.
func unmarshalExactly(data []byte, m proto.Message) error {
	if err := proto.Unmarshal(data, m); err != nil {
		return err
	}
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		return errWrongFields
	}
	return nil
}

// checkEnd returns an error unless the log may end at s.end of its newest file, where reading failed.
func (s *logScan) checkEnd(f *os.File, size int64, cause error) error {
	rest := make([]byte, size-s.end)
	if _, err := f.ReadAt(rest, s.end); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	content := bytes.TrimRight(rest, "\x00")
	if len(content) == 0 {
		return nil // preallocated
	}
	damaged := &damagedLogError{path: f.Name(), offset: s.end, cause: cause}
	if s.end%8 != 0 {
		damaged.problem = "a record before it has a wrong length"
		return damaged
	}
	if synced := s.syncedAfter(rest); synced > s.last {
		damaged.problem = fmt.Sprintf("change %d cannot be read, though the log was synced up to change %d", s.last+1, synced)
		return damaged
	}
	if !errors.Is(cause, io.EOF) && !isTorn(rest, len(content), s.end) {
		damaged.problem = fmt.Sprintf("change %d cannot be read, and not because it was only written in part", s.last+1)
		return damaged
	}
	s.torn = true
	return nil
}

// syncedAfter returns the number of the last change that a state record in rest says was synced before it, 0 if there is none: each batch of changes begins
// with such a record (changeLog.append).
func (s *logScan) syncedAfter(rest []byte) (synced uint64) {
	for ; len(rest) >= 8; rest = rest[8:] {
		length, _, ok := recordLength(rest)
		if !ok || length > maxStateBytes || 8+length > len(rest) {
			continue
		}
		var rec walpb.Record
		var state raftpb.HardState
		if proto.Unmarshal(rest[8:8+length], &rec) != nil || rec.GetType() != wal.StateType || proto.Unmarshal(rec.Data, &state) != nil {
			continue
		}
		// The id is random, so that no value a client stored can pass for a state record.
		if id := state.GetVote(); id != 0 && (id == s.id || s.id == 0) {
			synced = max(synced, state.GetCommit())
		}
	}
	return synced
}

// isTorn reports whether the record at the beginning of rest, which begins at an offset of the file, was written only in part: one
// of its sectors is still zero, or the file ends or is zero from some byte of it on.
func isTorn(rest []byte, content int, offset int64) bool {
	length, padding, ok := recordLength(rest)
	if !ok {
		return content < 8
	}
	if 8+length+padding > len(rest) || content < 8+length {
		return true
	}
	record := rest[8 : 8+length+padding]
	for at := offset + 8; len(record) > 0; {
		n := min(int(sectorBytes-at%sectorBytes), len(record))
		if len(bytes.Trim(record[:n], "\x00")) == 0 {
			return true
		}
		record, at = record[n:], at+int64(n)
	}
	return false
}

// recordLength decodes the length field of a record: the lower 56 bits are the length, the upper 8 encode the padding to a multiple of 8.
func recordLength(b []byte) (length, padding int, ok bool) {
	if len(b) < 8 {
		return 0, 0, false
	}
	field := binary.LittleEndian.Uint64(b)
	upper, lower := field>>56, field&(1<<56-1)
	if lower == 0 || lower > maxRecordBytes {
		return 0, 0, false
	}
	if upper != 0 {
		padding = int(upper & 7)
	}
	return int(lower), padding, upper == 0 || upper&0xf8 == 0x80
}

// damagedLogError is the error of a log that lacks changes that it held before.
type damagedLogError struct {
	path    string
	offset  int64 // the offset in the file; 0 if path is the directory
	problem string
	cause   error
}

func (e *damagedLogError) Error() string {
	text := fmt.Sprintf("the log is damaged: %s, at byte %d: %s", e.path, e.offset, e.problem)
	if e.offset == 0 {
		text = fmt.Sprintf("the log is damaged: %s: %s", e.path, e.problem)
	}
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *damagedLogError) Unwrap() error { return e.cause }

// withAdvice adds to an error what a person can do about a damaged log. applied is the last change that the database holds. An error of the
// operating system is returned as it is: the log need not be damaged.
func withAdvice(err error, logDir string, applied uint64) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) || errors.Is(err, fileutil.ErrLocked) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%w. Keep a copy of %s, then restore the newest snapshot into an empty data directory (skiff snapshot restore); "+
		"or move %s away to go on with what the database holds, which is everything up to change %d: what was written after that is lost",
		err, filepath.Dir(logDir), logDir, applied)
}
