package upgrade

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// drainTimeout bounds how long the last data of one side is waited for.
const drainTimeout = 5 * time.Second

// Dial wraps dial. On its connections a failed write returns only after all data of the backend has been read, or after drainTimeout.
func Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &backend{Conn: conn, drained: make(chan struct{})}, nil
	}
}

type backend struct {
	net.Conn
	closeDrained sync.Once
	// drained is closed when nothing more can be read.
	drained chan struct{}
}

func (b *backend) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if err != nil {
		b.closeDrained.Do(func() { close(b.drained) })
	}
	return n, err
}

func (b *backend) Write(p []byte) (int, error) {
	n, err := b.Conn.Write(p)
	if err != nil {
		select {
		case <-b.drained:
		case <-time.After(drainTimeout):
		}
	}
	return n, err
}

func (b *backend) Close() error {
	b.closeDrained.Do(func() { close(b.drained) })
	return b.Conn.Close()
}

// Hijackable wraps w. The connection that its Hijack returns is closed only after the client has received the last data, or after drainTimeout.
func Hijackable(w http.ResponseWriter) http.ResponseWriter { return hijackable{w} }

type hijackable struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (h hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return client{conn}, buf, nil
}

// Flush implements http.Flusher.
func (h hijackable) Flush() { _ = http.NewResponseController(h.ResponseWriter).Flush() }

type client struct{ net.Conn }

// Close closes the write side and reads what the client still sends until it closes too.
func (c client) Close() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = c.SetDeadline(time.Now().Add(drainTimeout))
		_, _ = io.Copy(io.Discard, c.Conn)
	}
	return c.Conn.Close()
}
