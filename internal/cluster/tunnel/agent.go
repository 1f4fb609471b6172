package tunnel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// Path returns the path of a node's tunnel.
func Path(node string) string { return PathPrefix + node }

// PathPrefix is the prefix of the paths of all tunnels.
const PathPrefix = "/skiff/v1/tunnels/"

const (
	// minBackoff and maxBackoff bound the back-off between attempts to open a tunnel.
	minBackoff = 250 * time.Millisecond
	maxBackoff = 15 * time.Second
	// stableTime is how long a tunnel must have lasted to reset the back-off.
	stableTime = 30 * time.Second
	// dialTimeout bounds how long the agent connects to the address of a stream, and how long the upgrade may take.
	dialTimeout = 10 * time.Second
)

// AgentOptions configure the agent's end of a tunnel.
type AgentOptions struct {
	Node string
	Host string // host and port of the API
	// Dial connects to the API as the node, over TLS, for HTTP/1.1.
	Dial func(ctx context.Context) (net.Conn, error)
	// Allowed reports whether the server may reach an address through this agent.
	Allowed func(ctx context.Context, to netip.AddrPort) bool
	Log     *slog.Logger
}

// Keep keeps a tunnel open until ctx ends, and returns when all streams have ended.
func Keep(ctx context.Context, o AgentOptions) {
	failureLogged := false
	for backoff := minBackoff; ctx.Err() == nil; backoff = min(2*backoff, maxBackoff) {
		began := time.Now()
		err := o.once(ctx, func() {
			if failureLogged {
				o.Log.Info("reopened the tunnel to the server")
			}
			failureLogged = false
		})
		if time.Since(began) > stableTime {
			backoff = minBackoff
		}
		if ctx.Err() == nil && !failureLogged && backoff > minBackoff { // the first failure is not logged: servers restart
			failureLogged = true
			o.Log.Warn("failed to keep the tunnel to the server open; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(float64(backoff) * (0.5 + rand.Float64()))): // jitter: agents must not all connect at once
		}
	}
}

// once opens one tunnel and serves it until it ends. opened is called once it is open.
func (o *AgentOptions) once(ctx context.Context, opened func()) error {
	conn, err := o.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if conn, err = o.upgrade(conn); err != nil {
		return err
	}
	opened()
	// Every stream holds the read lock, so all have ended when the write lock is acquired.
	var streams sync.RWMutex
	tunnelEnded := false
	server := &http2.Server{MaxConcurrentStreams: maxStreams, ReadIdleTimeout: pingAfter, PingTimeout: pingTimeout}
	server.ServeConn(conn, &http2.ServeConnOpts{Context: ctx, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streams.RLock()
		defer streams.RUnlock()
		if !tunnelEnded {
			o.serve(w, r)
		}
	})})
	streams.Lock()
	tunnelEnded = true
	streams.Unlock()
	return errors.New("the tunnel has ended")
}

// upgrade requests the upgrade of a connection to a tunnel.
func (o *AgentOptions) upgrade(conn net.Conn) (net.Conn, error) {
	if err := conn.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return nil, err
	}
	request, err := http.NewRequest(http.MethodGet, "https://"+o.Host+Path(o.Node), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", protocol)
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 1024))
		response.Body.Close()
		return nil, fmt.Errorf("the server refused the upgrade to a tunnel: %s: %s", response.Status, strings.TrimSpace(string(why)))
	}
	return &bufferedConn{Conn: conn, reader: reader}, conn.SetDeadline(time.Time{})
}

// bufferedConn is a connection that is read through a buffer, which has some of its data already.
type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

// Read reads from the buffer.
func (c *bufferedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// serve connects a stream to the address that the server wants to reach.
func (o *AgentOptions) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT is understood here", http.StatusMethodNotAllowed)
		return
	}
	to, err := netip.ParseAddrPort(r.Host)
	if err != nil {
		http.Error(w, fmt.Sprintf("%q is not an address and a port", r.Host), http.StatusBadRequest)
		return
	}
	if !o.Allowed(r.Context(), to) {
		http.Error(w, fmt.Sprintf("%s is not the kubelet of node %s, a pod on it or a service", to, o.Node), http.StatusForbidden)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer conn.Close()
	relay(w, r, conn.(*net.TCPConn))
}
