package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
)

// ListenerEnv is the environment variable with the number of an open file that the API is served at too: a socket that another network namespace has.
const ListenerEnv = "SKIFF_LISTENER"

// inherited is the listener that the process was started with, or nil.
func inherited() (net.Listener, error) {
	value := os.Getenv(ListenerEnv)
	if value == "" {
		return nil, nil
	}
	os.Unsetenv(ListenerEnv) // for those that this process starts it means nothing
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s=%q is not the number of an open file", ListenerEnv, value)
	}
	file := os.NewFile(uintptr(fd), "listener")
	defer file.Close()
	return net.FileListener(file)
}

// listeners are several as one. Its address is that of the first.
type listeners struct {
	net.Listener
	all      []net.Listener
	accepted chan accepted
	closed   chan struct{}
	once     sync.Once
	wg       sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

// joinListeners has connections of several listeners come from one.
func joinListeners(first net.Listener, more ...net.Listener) net.Listener {
	if len(more) == 0 {
		return first
	}
	l := &listeners{Listener: first, all: append([]net.Listener{first}, more...), accepted: make(chan accepted), closed: make(chan struct{})}
	for _, from := range l.all {
		l.wg.Go(func() { l.accept(from) })
	}
	return l
}

func (l *listeners) accept(from net.Listener) {
	for {
		conn, err := from.Accept()
		select {
		case l.accepted <- accepted{conn, err}:
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

func (l *listeners) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listeners) Close() (failed error) {
	l.once.Do(func() {
		close(l.closed)
		for _, one := range l.all {
			failed = errors.Join(failed, one.Close())
		}
		l.wg.Wait()
	})
	return failed
}
