package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"skiff/internal/apiserver"
)

// LogPath is where a cluster in the background logs. Older parts are beside it, with .1 for the newest of them.
func LogPath(dataDir string) string { return filepath.Join(dataDir, logName) }

const (
	logName = "skiff.log"
	// logBytes and logParts bound the log: a part that has grown so large becomes skiff.log.1, and so many of those are kept.
	logBytes = 10 << 20
	logParts = 3
)

// OpenLog opens the log of a process that is about to be started in the background, at its end, and notes the start there. open is
// os.OpenFile, or that of an os.Root.
func OpenLog(open OpenFile, path string) (*os.File, error) {
	f, err := openLog(open, path)
	if err != nil {
		return nil, err
	}
	slog.New(slog.NewTextHandler(f, nil)).Info("starting skiff", "version", apiserver.Version)
	return f, nil
}

// OpenFile opens a file.
type OpenFile func(path string, flag int, mode fs.FileMode) (*os.File, error)

func openLog(open OpenFile, path string) (*os.File, error) {
	// O_NONBLOCK is for the opening of what is no file, which is refused.
	f, err := open(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, fmt.Errorf("%s is not a regular file", path))
	}
	return f, nil
}

// LogFile is the log of a process in the background, rotated when it has grown to a size.
type LogFile struct {
	path  string
	limit int64
	parts int
	fds   []int // descriptors of the process that lead to the log, and do so after it was rotated

	mu   sync.Mutex
	file *os.File
	size int64
}

// OwnLog returns the log of a data directory if this process was started to write there, and nil otherwise: a service manager has its own.
func OwnLog(dataDir string) (*LogFile, error) {
	return openOwn(LogPath(dataDir), logBytes, logParts, int(os.Stdout.Fd()), int(os.Stderr.Fd()))
}

// openOwn returns the log if at least one of the descriptors leads there.
func openOwn(path string, limit int64, parts int, fds ...int) (*LogFile, error) {
	var there unix.Stat_t
	if err := unix.Lstat(path, &there); err != nil {
		return nil, nil
	}
	l := &LogFile{path: path, limit: limit, parts: parts}
	for _, fd := range fds {
		var is unix.Stat_t
		if unix.Fstat(fd, &is) == nil && is.Dev == there.Dev && is.Ino == there.Ino {
			l.fds = append(l.fds, fd)
		}
	}
	if len(l.fds) == 0 {
		return nil, nil
	}
	return l, l.open()
}

func (l *LogFile) open() error {
	f, err := openLog(os.OpenFile, l.path)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.size = f, info.Size()
	return nil
}

// Write appends what is written at once, a line, to the log.
func (l *LogFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(p)) > l.limit {
		if err := l.rotate(); err != nil {
			// It must not grow for ever: the lines that cannot be moved away are dropped.
			fmt.Fprintf(l.file, "level=ERROR msg=\"failed to rotate the log\" path=%q err=%q\n", l.path, err)
			if l.file.Truncate(0) == nil {
				l.size = 0
			}
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

// rotate makes the log an older part and begins a new one.
func (l *LogFile) rotate() error {
	for i := l.parts; i > 0; i-- {
		from := l.path
		if i > 1 {
			from = l.part(i - 1)
		}
		if err := os.Rename(from, l.part(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	old := l.file
	if err := l.open(); err != nil {
		l.file = old
		return err
	}
	old.Close()
	for _, fd := range l.fds { // a panic is written there
		if err := unix.Dup2(int(l.file.Fd()), fd); err != nil {
			return err
		}
	}
	return nil
}

func (l *LogFile) part(i int) string { return l.path + "." + strconv.Itoa(i) }

// Close closes the log; the process's own descriptors stay open.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// logFile reports whether a file in a data directory is the log or an older part of it.
func logFile(name string) bool {
	rest, ok := strings.CutPrefix(name, logName)
	if !ok || rest == "" {
		return ok
	}
	number, err := strconv.Atoi(strings.TrimPrefix(rest, "."))
	return err == nil && rest[0] == '.' && number > 0
}

// lastBytes bounds what is read to find the last line of a log.
const lastBytes = 64 << 10

// LastLine is how a log ends: most often with why.
func LastLine(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	data, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-lastBytes), lastBytes))
	if err != nil {
		return err.Error()
	}
	data = bytes.TrimSpace(data)
	return string(data[bytes.LastIndexByte(data, '\n')+1:])
}
