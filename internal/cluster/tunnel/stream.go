package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"
)

// dial opens a stream to an address.
func (l *link) dial(ctx context.Context, address string) (net.Conn, error) {
	if !l.streams.CanTakeNewRequest() {
		return nil, errors.New("it carries as many connections as it can")
	}
	// The stream lives longer than what opens it.
	living, end := context.WithCancel(context.Background())
	opening, opened := context.WithTimeout(ctx, openTime)
	defer opened()
	giveUp := context.AfterFunc(opening, end)
	body, send := io.Pipe()
	request := (&http.Request{Method: http.MethodConnect, URL: &url.URL{Scheme: "http", Host: address}, Host: address, Header: http.Header{}, Body: body, ContentLength: -1}).WithContext(living)
	response, err := l.streams.RoundTrip(request)
	if err != nil {
		end()
		return nil, err
	}
	if !giveUp() {
		end()
		response.Body.Close()
		return nil, context.Cause(opening)
	}
	if response.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		end()
		response.Body.Close()
		return nil, fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(why)))
	}
	// A pipe has deadlines, which streams have not.
	near, far := net.Pipe()
	s := &stream{Conn: near, far: far, remote: address}
	var both sync.WaitGroup
	both.Go(func() {
		_, err := io.Copy(send, far)
		send.CloseWithError(err)
	})
	both.Go(func() {
		_, _ = io.Copy(far, response.Body)
		far.Close()
	})
	go func() {
		both.Wait()
		end()
		response.Body.Close()
	}()
	return s, nil
}

// stream is a connection through a tunnel.
type stream struct {
	net.Conn
	far    net.Conn
	remote string
}

// Read reads what comes through.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	return n, asClosed(err)
}

// Write sends something through.
func (s *stream) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	return n, asClosed(err)
}

// asClosed is how connections of a network say that they are closed.
func asClosed(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return net.ErrClosed
	}
	return err
}

// Close ends the connection.
func (s *stream) Close() error { return errors.Join(s.Conn.Close(), s.far.Close()) }

// RemoteAddr is where the stream leads.
func (s *stream) RemoteAddr() net.Addr {
	to, err := netip.ParseAddrPort(s.remote)
	if err != nil {
		return s.Conn.RemoteAddr()
	}
	return net.TCPAddrFromAddrPort(to)
}

// carry joins a stream, as the agent sees it, with a connection until either ends.
func carry(w http.ResponseWriter, r *http.Request, conn *net.TCPConn) {
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	if flush.Flush() != nil {
		return
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		_, err := io.Copy(conn, r.Body)
		if err != nil {
			conn.Close() // the server has given up
			return
		}
		_ = conn.CloseWrite()
	})
	_, _ = io.Copy(flushing{w, flush}, conn)
	// What is still sent has nobody to hear it.
	_ = conn.SetDeadline(time.Now())
	r.Body.Close()
	sending.Wait()
}

// flushing sends everything on at once.
type flushing struct {
	io.Writer
	flush *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err != nil {
		return n, err
	}
	return n, f.flush.Flush()
}
