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

// socket reads and writes a connection by raw system calls, which Go's scheduler is not told of. None of them waits in the kernel, as the socket is
// non-blocking, but under load many take longer than the 20 microseconds after which the scheduler's monitor hands the goroutine's processor to another thread:
// that wakes a thread that finds nothing to do, and keeps the monitor itself awake, at the price of thousands of context switches a second.
type socket struct {
	net.Conn
	raw syscall.RawConn

	reads, writes direction
}

// direction is the reading or the writing half of a socket. It keeps what a call needs, so that calls allocate nothing.
type direction struct {
	mu         sync.Mutex
	call       uintptr                      // the number of the system call
	do         func(fd uintptr) (done bool) // the method try, as a value
	beforeWait func()                       // called before the socket is waited for; may be nil
	p          []byte                       // argument of the call
	n          int                          // result of the call
	err        syscall.Errno                // result of the call
}

// newSocket returns a connection that is read and written by raw system calls, or c itself if it is not a TCP connection.
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
	s.reads.prepare(syscall.SYS_READ)
	s.writes.prepare(syscall.SYS_WRITE)
	return s
}

func (d *direction) prepare(call uintptr) {
	d.call, d.do = call, d.try
}

// try makes the system call, again if it is interrupted. done is false if the socket has to be waited for.
func (d *direction) try(fd uintptr) (done bool) {
	for {
		n, _, err := syscall.RawSyscall(d.call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(d.p))), uintptr(len(d.p)))
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			if d.beforeWait != nil {
				d.beforeWait()
			}
			return false
		case 0:
			d.n, d.err = int(n), 0
		default:
			d.n, d.err = 0, err
		}
		return true
	}
}

// beforeWait sets a function that is called whenever nothing is left to read. It must not be called during a Read.
func (s *socket) beforeWait(do func()) { s.reads.beforeWait = do }

// setLowWaterMark has a waiting Read woken only once there are so many bytes.
func (s *socket) setLowWaterMark(bytes int) error {
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
	d := &s.reads
	d.mu.Lock()
	defer d.mu.Unlock()
	d.p = p
	err := s.raw.Read(d.do)
	d.p = nil
	switch {
	case err != nil:
		return 0, err
	case d.err != 0:
		return 0, s.opError("read", d.err)
	case d.n == 0:
		return 0, io.EOF
	}
	return d.n, nil
}

func (s *socket) Write(p []byte) (written int, err error) {
	d := &s.writes
	d.mu.Lock()
	defer d.mu.Unlock()
	for written < len(p) {
		d.p = p[written:]
		err = s.raw.Write(d.do)
		d.p = nil
		if err != nil {
			return written, err
		}
		if d.err != 0 {
			return written, s.opError("write", d.err)
		}
		written += d.n
	}
	return written, nil
}

// opError returns the error that package net would.
func (s *socket) opError(op string, err syscall.Errno) error {
	return &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}
