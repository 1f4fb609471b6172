// Package upgrade keeps the last words of connections that a proxy carries after they were upgraded from HTTP.
//
// apimachinery's proxy ends both halves of a carried connection when either ends. When a backend has said all it has to say and closes
// while a client still sends, writing to the backend fails first, and what it said last (the exit code of a process, with exec) is
// lost on its way. And whoever closes a connection with unread input resets it, and what was not sent yet is lost again.
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

// patience bounds how long the last words of one side are waited for.
const patience = 5 * time.Second

// Dial makes connections to backends with dial, on which a failed write is told of only when all that the backend said has been read.
func Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &backend{Conn: conn, read: make(chan struct{})}, nil
	}
}

type backend struct {
	net.Conn
	ended sync.Once
	// read is closed when nothing more can be read.
	read chan struct{}
}

func (b *backend) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if err != nil {
		b.ended.Do(func() { close(b.read) })
	}
	return n, err
}

func (b *backend) Write(p []byte) (int, error) {
	n, err := b.Conn.Write(p)
	if err != nil {
		select {
		case <-b.read:
		case <-time.After(patience):
		}
	}
	return n, err
}

func (b *backend) Close() error {
	b.ended.Do(func() { close(b.read) })
	return b.Conn.Close()
}

// Hijackable returns w with a connection to take over that is closed only when its client has heard the last words.
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

// Close says that nothing more comes and reads what the client still sends, until it has closed too.
func (c client) Close() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = io.Copy(io.Discard, c.Conn)
	}
	return c.Conn.Close()
}
