package http2

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// socket reads and writes a connection without telling Go's scheduler of each system call. None of these ever waits in the kernel, as the socket does not
// block, but under load many take longer than the 20 microseconds after which the scheduler's monitor gives the goroutine's processor to another thread: that
// wakes a thread that finds nothing to do, and keeps the monitor itself awake, at the price of thousands of switches a second.
type socket struct {
	net.Conn
	raw syscall.RawConn

	reading, writing transfer
}

// transfer is one direction of a socket, with what is kept between calls so that they need no memory.
type transfer struct {
	mu     sync.Mutex
	call   uintptr
	do     func(fd uintptr) (done bool)
	before func() // waiting
	p      []byte
	n      int
	err    syscall.Errno
}

// newSocket is a connection that is read and written like this, if it is one that can be.
func newSocket(c net.Conn) net.Conn {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return c
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return c
	}
	s := &socket{Conn: c, raw: raw}
	s.reading.prepare(syscall.SYS_READ)
	s.writing.prepare(syscall.SYS_WRITE)
	return s
}

func (t *transfer) prepare(call uintptr) {
	t.call, t.do = call, t.try
}

// try is one system call, or as many as are interrupted. It is not done when the socket has to be waited for.
func (t *transfer) try(fd uintptr) (done bool) {
	for {
		n, _, err := syscall.RawSyscall(t.call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(t.p))), uintptr(len(t.p)))
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			if t.before != nil {
				t.before()
			}
			return false
		case 0:
			t.n, t.err = int(n), 0
		default:
			t.n, t.err = 0, err
		}
		return true
	}
}

// beforeWaiting is told what to do when nothing is left to read. It is not to be called while somebody reads.
func (s *socket) beforeWaiting(do func()) { s.reading.before = do }

// wakeFor has nobody woken to read while there are fewer bytes.
func (s *socket) wakeFor(bytes int) error {
	var failed error
	err := s.raw.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes)
	})
	return errors.Join(err, failed)
}

func (s *socket) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	t := &s.reading
	t.mu.Lock()
	defer t.mu.Unlock()
	t.p = p
	err := s.raw.Read(t.do)
	t.p = nil
	switch {
	case err != nil:
		return 0, err
	case t.err != 0:
		return 0, s.failed("read", t.err)
	case t.n == 0:
		return 0, io.EOF
	}
	return t.n, nil
}

func (s *socket) Write(p []byte) (written int, err error) {
	t := &s.writing
	t.mu.Lock()
	defer t.mu.Unlock()
	for written < len(p) {
		t.p = p[written:]
		err = s.raw.Write(t.do)
		t.p = nil
		if err != nil {
			return written, err
		}
		if t.err != 0 {
			return written, s.failed("write", t.err)
		}
		written += t.n
	}
	return written, nil
}

// failed is an error as net has it.
func (s *socket) failed(op string, err syscall.Errno) error {
	return &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}
