package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
)

// ListenerEnv is the environment variable with the descriptor of an inherited listening socket that the API is served on too. The socket is of another network
// namespace.
const ListenerEnv = "SKIFF_LISTENER"

// inheritedListener returns the listener of ListenerEnv, or nil if there is none.
func inheritedListener() (net.Listener, error) {
	value := os.Getenv(ListenerEnv)
	if value == "" {
		return nil, nil
	}
	os.Unsetenv(ListenerEnv) // child processes do not inherit the descriptor
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s=%q is not the number of a file descriptor", ListenerEnv, value)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	return net.FileListener(file)
}

// joinedListener accepts the connections of several listeners. Its address is that of the first.
type joinedListener struct {
	net.Listener
	all      []net.Listener
	accepted chan acceptResult
	closed   chan struct{}
	once     sync.Once
	wg       sync.WaitGroup
}

type acceptResult struct {
	conn net.Conn
	err  error
}

// joinListeners returns one listener that accepts the connections of several.
func joinListeners(first net.Listener, more ...net.Listener) net.Listener {
	if len(more) == 0 {
		return first
	}
	l := &joinedListener{Listener: first, all: append([]net.Listener{first}, more...), accepted: make(chan acceptResult), closed: make(chan struct{})}
	for _, from := range l.all {
		l.wg.Go(func() { l.accept(from) })
	}
	return l
}

// accept passes on the connections of one listener until it is closed.
func (l *joinedListener) accept(from net.Listener) {
	for {
		conn, err := from.Accept()
		select {
		case l.accepted <- acceptResult{conn, err}:
		case <-l.closed:
			if err == nil {
				conn.Close()
			}
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// Accept returns the next connection of any of the listeners.
func (l *joinedListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close closes all listeners.
func (l *joinedListener) Close() (failed error) {
	l.once.Do(func() {
		close(l.closed)
		for _, one := range l.all {
			failed = errors.Join(failed, one.Close())
		}
		l.wg.Wait()
	})
	return failed
}
