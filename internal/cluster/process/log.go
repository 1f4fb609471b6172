package process

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
)

// LogPath returns the path of the log of a process in the background. Rotated files are beside it, with .1 for the newest of them.
func LogPath(dataDir string) string { return filepath.Join(dataDir, logName) }

const (
	logName = "skiff.log"
	// maxLogBytes is the size at which the log is rotated: it becomes skiff.log.1.
	maxLogBytes = 10 << 20
	// rotatedLogs is how many rotated files are kept.
	rotatedLogs = 3
)

// OpenLog opens the log of a process that is about to be started in the background, for appending, and notes the start there. open is
// os.OpenFile, or that of an os.Root.
func OpenLog(open OpenFile, path, version string) (*os.File, error) {
	f, err := openLog(open, path)
	if err != nil {
		return nil, err
	}
	slog.New(slog.NewTextHandler(f, nil)).Info("starting skiff", "version", version)
	return f, nil
}

// OpenFile opens a file, as os.OpenFile does.
type OpenFile func(path string, flag int, mode fs.FileMode) (*os.File, error)

func openLog(open OpenFile, path string) (*os.File, error) {
	// O_NONBLOCK keeps the opening of a FIFO, which is then refused, from blocking.
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

// LogFile is the log of this process, rotated when it has grown to a size.
type LogFile struct {
	path     string
	maxBytes int64
	rotated  int   // how many rotated files are kept
	fds      []int // descriptors of the process that are open on the log, and are moved to the new file when it is rotated

	mu   sync.Mutex
	file *os.File
	size int64
}

// InheritedLog returns the log of a data directory if the standard output or error of this process was opened on it, and nil otherwise: under a service
// manager they lead elsewhere.
func InheritedLog(dataDir string) (*LogFile, error) {
	return openInherited(LogPath(dataDir), maxLogBytes, rotatedLogs, int(os.Stdout.Fd()), int(os.Stderr.Fd()))
}

// openInherited returns the log if at least one of the descriptors is open on it, and nil otherwise.
func openInherited(path string, maxBytes int64, rotated int, fds ...int) (*LogFile, error) {
	var log unix.Stat_t
	if err := unix.Lstat(path, &log); err != nil {
		return nil, nil
	}
	l := &LogFile{path: path, maxBytes: maxBytes, rotated: rotated}
	for _, fd := range fds {
		var open unix.Stat_t
		if unix.Fstat(fd, &open) == nil && open.Dev == log.Dev && open.Ino == log.Ino {
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

// Write appends a line to the log, and rotates the log before if the line would make it too large.
func (l *LogFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(p)) > l.maxBytes {
		if err := l.rotate(); err != nil {
			// The log must not grow for ever: lines that cannot be rotated away are dropped.
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

// rotate renames the log and the rotated files, and begins a new log.
func (l *LogFile) rotate() error {
	for i := l.rotated; i > 0; i-- {
		from := l.path
		if i > 1 {
			from = l.rotatedPath(i - 1)
		}
		if err := os.Rename(from, l.rotatedPath(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	old := l.file
	if err := l.open(); err != nil {
		l.file = old
		return err
	}
	old.Close()
	for _, fd := range l.fds { // the runtime writes a panic there
		if err := unix.Dup2(int(l.file.Fd()), fd); err != nil {
			return err
		}
	}
	return nil
}

func (l *LogFile) rotatedPath(i int) string { return l.path + "." + strconv.Itoa(i) }

// Close closes the log; standard output and error stay open.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// IsLogFile reports whether a file of this name in a data directory is the log or a rotated one.
func IsLogFile(name string) bool {
	rest, ok := strings.CutPrefix(name, logName)
	if !ok || rest == "" {
		return ok
	}
	number, err := strconv.Atoi(strings.TrimPrefix(rest, "."))
	return err == nil && rest[0] == '.' && number > 0
}

// maxLineBytes bounds what is read to find the last line of a log.
const maxLineBytes = 64 << 10

// LastLine returns the last line of a log, which most often says why a process ended, or why it cannot be read.
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
	data, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-maxLineBytes), maxLineBytes))
	if err != nil {
		return err.Error()
	}
	data = bytes.TrimSpace(data)
	return string(data[bytes.LastIndexByte(data, '\n')+1:])
}
