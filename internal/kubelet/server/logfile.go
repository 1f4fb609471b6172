package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"skiff/internal/kubelet/regular"
)

// Container runtimes write a line of a container's as
//
//	2026-01-02T15:04:05.123456789Z stdout F what the container wrote
//
// F ends a line; a longer one comes in pieces, with P for all but the last.

const (
	// maxLine bounds what is kept of a line. Runtimes cut at 16 KiB; what is longer all the same comes in pieces of this size.
	maxLine = 256 << 10
	// timestamps are all of one width.
	timestampFormat = "2006-01-02T15:04:05.000000000Z07:00"
	// A followed log is polled: often while the container writes, then less and less. inotify would take a watch for each, of which a user has 128; a poll
	// costs microseconds.
	firstLook = 10 * time.Millisecond
	lastLook  = 200 * time.Millisecond
)

// logFile reads a container's log.
type logFile struct {
	path string
	f    *os.File
	q    *logQuery

	lines   int64 // how many more lines are requested; all if negative
	bytes   int64
	partial bool // the next piece continues a line
	cut     bool // the next piece has no head of its own: the line was longer than maxLine
	current entry
}

// entry is a line, or a piece of one.
type entry struct {
	time   time.Time
	stderr bool
	ends   bool
	text   []byte
}

func openLog(path string, q *logQuery) (*logFile, error) {
	if path == "" {
		return nil, errors.New("the container has no log")
	}
	f, err := regular.Open(path)
	if err != nil {
		return nil, fmt.Errorf("failed to open log file %q: %w", path, err)
	}
	l := &logFile{path: path, f: f, q: q, lines: -1, bytes: q.limit}
	if q.tail >= 0 {
		start, err := tailStart(f, q.tail)
		if err == nil {
			_, err = f.Seek(start, io.SeekStart)
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("failed to tail %d lines of log file %q: %w", q.tail, path, err)
		}
		if !q.follow {
			l.lines = q.tail // and not what is written meanwhile
		}
	}
	return l, nil
}

func (l *logFile) Close() { l.f.Close() }

// copyTo writes the requested part of the log. If it is followed, it returns when the container has exited or ctx ends.
func (l *logFile) copyTo(ctx context.Context, to *flushed, running func() bool) error {
	out := bufio.NewWriterSize(to, 32<<10)
	flush := func() error { return errors.Join(out.Flush(), to.Flush()) }
	in := bufio.NewReaderSize(l.f, 64<<10)
	pause, alive := firstLook, true
	var asked time.Time // whether it is
	for ctx.Err() == nil {
		n, err := l.copyLines(in, out)
		if err != nil {
			return errors.Join(flush(), ignoreEnd(err))
		}
		if n > 0 {
			pause = firstLook
			if err := flush(); err != nil {
				return err
			}
		}
		if !l.q.follow {
			_, err := l.copyRest(in, out)
			return errors.Join(ignoreEnd(err), flush())
		}
		if next := l.rotated(); next != nil {
			// What was written before the change is in the old file.
			_, err := l.copyLines(in, out)
			l.f.Close()
			l.f = next
			in.Reset(l.f)
			if err != nil {
				return errors.Join(flush(), ignoreEnd(err))
			}
			continue
		}
		if !alive {
			_, err := l.copyRest(in, out)
			return errors.Join(ignoreEnd(err), flush())
		}
		if n == 0 {
			if time.Since(asked) >= lastLook {
				asked = time.Now()
				if alive = running(); !alive {
					continue // with what it wrote until its end
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, lastLook)
		}
	}
	return ctx.Err()
}

// errLimitReached ends reading: all requested bytes or lines were written.
var errLimitReached = errors.New("enough")

func ignoreEnd(err error) error {
	if errors.Is(err, errLimitReached) {
		return nil
	}
	return err
}

// copyLines writes all complete lines, and returns how many bytes it has read.
func (l *logFile) copyLines(in *bufio.Reader, out io.Writer) (n int, err error) {
	for {
		if l.lines == 0 {
			return n, errLimitReached
		}
		line, err := readLine(in)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return n, fmt.Errorf("failed to read log file %q: %w", l.path, err)
			}
			return n, l.unread(in, line)
		}
		n += len(line)
		if err := l.write(line, out); err != nil {
			return n, err
		}
	}
}

// readLine reads to the end of a line, or as much as is kept of one.
func readLine(in *bufio.Reader) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	for len(long) < maxLine {
		if line, err = in.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			return append(long, line...), err
		}
		long = append(long, line...)
	}
	return long, nil
}

// unread puts back a line that is being written.
func (l *logFile) unread(in *bufio.Reader, line []byte) error {
	if len(line) == 0 {
		in.Reset(l.f)
		return nil
	}
	_, err := l.f.Seek(-int64(len(line)), io.SeekCurrent)
	in.Reset(l.f)
	return err
}

// copyRest writes a last line without a newline.
func (l *logFile) copyRest(in *bufio.Reader, out io.Writer) (int, error) {
	line, err := readLine(in)
	if len(line) == 0 || err != nil && !errors.Is(err, io.EOF) {
		return 0, ignoreEOF(err)
	}
	return len(line), l.write(bytes.Clone(line), out)
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// rotated returns the file that replaced this one, nil if none did.
func (l *logFile) rotated() *os.File {
	there, err := os.Lstat(l.path)
	if err != nil {
		return nil // it is being rotated, or was removed
	}
	here, err := l.f.Stat()
	if err != nil || os.SameFile(here, there) {
		l.truncated(there)
		return nil
	}
	next, err := regular.Open(l.path)
	if err != nil {
		return nil
	}
	return next
}

// truncated starts over with a file that was truncated in place.
func (l *logFile) truncated(now fs.FileInfo) {
	if at, err := l.f.Seek(0, io.SeekCurrent); err == nil && now.Size() < at {
		_, _ = l.f.Seek(0, io.SeekStart)
	}
}

// write writes a line of the file if it is requested. A malformed line is left out.
func (l *logFile) write(line []byte, out io.Writer) error {
	e := &l.current
	if l.cut {
		e.text = line
	} else if !e.parse(line) {
		return nil
	}
	l.cut = line[len(line)-1] != '\n' && len(line) >= maxLine
	if !e.ends && !l.cut {
		e.text = bytes.TrimSuffix(e.text, []byte{'\n'})
	}
	if l.lines > 0 && !l.cut {
		l.lines--
	}
	continues := l.partial
	l.partial = !bytes.HasSuffix(e.text, []byte{'\n'}) && len(e.text) > 0
	if e.time.Before(l.q.since) || e.stderr && !l.q.stderr || !e.stderr && !l.q.stdout {
		return nil
	}
	if l.q.timestamps && !continues {
		if err := l.put(out, e.time.AppendFormat(nil, timestampFormat+" ")); err != nil {
			return err
		}
	}
	return l.put(out, e.text)
}

// put writes up to the byte limit.
func (l *logFile) put(out io.Writer, b []byte) error {
	if l.bytes >= 0 {
		b = b[:min(int64(len(b)), l.bytes)]
		l.bytes -= int64(len(b))
	}
	if _, err := out.Write(b); err != nil {
		return err
	}
	if l.bytes == 0 {
		return errLimitReached
	}
	return nil
}

// parse takes a line of the file apart.
func (e *entry) parse(line []byte) bool {
	head, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return false
	}
	t, err := time.Parse(time.RFC3339Nano, string(head))
	if err != nil {
		return false
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok || string(stream) != "stdout" && string(stream) != "stderr" {
		return false
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return false
	}
	tag, _, _ := bytes.Cut(tags, []byte{':'}) // there may be more of them one day
	*e = entry{time: t, stderr: string(stream) == "stderr", ends: string(tag) != "P", text: text}
	return true
}

// tailStart finds where the last lines of a file begin.
func tailStart(f *os.File, lines int64) (int64, error) {
	const block = 32 << 10
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || lines == 0 {
		return end, err
	}
	buf := make([]byte, block)
	var seen int64
	for at := end; at > 0; {
		n := min(block, at)
		if _, err := f.ReadAt(buf[:n], at-n); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] != '\n' {
				continue
			}
			if seen++; seen > lines {
				return at - n + i + 1, nil
			}
		}
		at -= n
	}
	return 0, nil
}
