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

// dial opens a stream of the tunnel to an address.
func (l *link) dial(ctx context.Context, address string) (net.Conn, error) {
	if !l.streams.CanTakeNewRequest() {
		return nil, errors.New("it is closing, or has as many streams as it can")
	}
	// The stream outlives ctx, which bounds only its opening.
	streamCtx, end := context.WithCancel(context.Background())
	openCtx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stopAfter := context.AfterFunc(openCtx, end)
	body, send := io.Pipe()
	request := (&http.Request{Method: http.MethodConnect, URL: &url.URL{Scheme: "http", Host: address}, Host: address, Header: http.Header{}, Body: body, ContentLength: -1}).WithContext(streamCtx)
	response, err := l.streams.RoundTrip(request)
	if err != nil {
		end()
		return nil, err
	}
	if !stopAfter() {
		end()
		response.Body.Close()
		return nil, context.Cause(openCtx)
	}
	if response.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		end()
		response.Body.Close()
		return nil, fmt.Errorf("the agent refused the connection: %s: %s", response.Status, strings.TrimSpace(string(why)))
	}
	// A pipe supports deadlines, which HTTP/2 streams do not.
	near, far := net.Pipe()
	s := &stream{Conn: near, far: far, remote: address}
	var copying sync.WaitGroup
	copying.Go(func() {
		_, err := io.Copy(send, far)
		send.CloseWithError(err)
	})
	copying.Go(func() {
		_, _ = io.Copy(far, response.Body)
		far.Close()
	})
	go func() {
		copying.Wait()
		end()
		response.Body.Close()
	}()
	return s, nil
}

// stream is a connection through a tunnel.
type stream struct {
	net.Conn
	far    net.Conn // the other end of the pipe
	remote string
}

// Read reads from the stream.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	return n, asClosed(err)
}

// Write writes to the stream.
func (s *stream) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	return n, asClosed(err)
}

// asClosed returns net.ErrClosed for the error of a closed pipe, as network connections do.
func asClosed(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return net.ErrClosed
	}
	return err
}

// Close closes the stream.
func (s *stream) Close() error { return errors.Join(s.Conn.Close(), s.far.Close()) }

// RemoteAddr returns the address that the stream is connected to.
func (s *stream) RemoteAddr() net.Addr {
	to, err := netip.ParseAddrPort(s.remote)
	if err != nil {
		return s.Conn.RemoteAddr()
	}
	return net.TCPAddrFromAddrPort(to)
}

// relay copies between a stream, at the agent's end, and a connection until either ends.
func relay(w http.ResponseWriter, r *http.Request, conn *net.TCPConn) {
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	if flush.Flush() != nil {
		return
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		_, err := io.Copy(conn, r.Body)
		if err != nil {
			conn.Close() // the server has closed the stream
			return
		}
		_ = conn.CloseWrite()
	})
	_, _ = io.Copy(flushWriter{w, flush}, conn)
	// The connection has ended: what the server still sends cannot be delivered.
	_ = conn.SetDeadline(time.Now())
	r.Body.Close()
	sending.Wait()
}

// flushWriter flushes after each write.
type flushWriter struct {
	io.Writer
	flush *http.ResponseController
}

// Write writes and flushes.
func (f flushWriter) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err != nil {
		return n, err
	}
	return n, f.flush.Flush()
}
