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

// Path is where a node's tunnel begins.
func Path(node string) string { return PathPrefix + node }

// PathPrefix begins the paths of all.
const PathPrefix = "/skiff/v1/tunnels/"

const (
	firstPause = 250 * time.Millisecond
	lastPause  = 15 * time.Second
	steady     = 30 * time.Second // how long a tunnel must have lasted for its end to be nothing to wait after
	reachTime  = 10 * time.Second // bounds how long the agent tries to reach what a stream leads to
)

// AgentOptions say how an agent keeps its tunnel.
type AgentOptions struct {
	Node string
	Host string // of the API
	// Dial connects to the API, as the node, over TLS and to speak HTTP/1.1.
	Dial func(ctx context.Context) (net.Conn, error)
	// Allowed says whether the server may reach an address through this agent. Everything else is refused.
	Allowed func(ctx context.Context, to netip.AddrPort) bool
	Log     *slog.Logger
}

// Keep keeps a tunnel open until ctx ends and all that goes through it has.
func Keep(ctx context.Context, o AgentOptions) {
	told := false
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := o.once(ctx, func() {
			if told {
				o.Log.Info("the server has a tunnel to this node again")
			}
			told = false
		})
		if time.Since(began) > steady {
			pause = firstPause
		}
		if ctx.Err() == nil && !told && pause > firstPause { // once is no news: servers restart
			told = true
			o.Log.Warn("the server has no tunnel to this node; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(float64(pause) * (0.5 + rand.Float64()))): // not all at once
		}
	}
}

// once keeps one tunnel open for as long as it lasts.
func (o *AgentOptions) once(ctx context.Context, open func()) error {
	conn, err := o.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if conn, err = o.upgrade(conn); err != nil {
		return err
	}
	open()
	// Every stream holds streams for reading, so that all have ended when it can be held for writing.
	var streams sync.RWMutex
	ended := false
	server := &http2.Server{MaxConcurrentStreams: maxStreams, ReadIdleTimeout: quietTime, PingTimeout: pingTime}
	server.ServeConn(conn, &http2.ServeConnOpts{Context: ctx, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		streams.RLock()
		defer streams.RUnlock()
		if !ended {
			o.serve(w, r)
		}
	})})
	streams.Lock()
	ended = true
	streams.Unlock()
	return errors.New("the tunnel has ended")
}

// upgrade asks the server to make the connection a tunnel.
func (o *AgentOptions) upgrade(conn net.Conn) (net.Conn, error) {
	if err := conn.SetDeadline(time.Now().Add(reachTime)); err != nil {
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
		return nil, fmt.Errorf("the server answers %s: %s", response.Status, strings.TrimSpace(string(why)))
	}
	return &read{Conn: conn, from: reader}, conn.SetDeadline(time.Time{})
}

// read is a connection of which something has been read already.
type read struct {
	net.Conn
	from *bufio.Reader
}

func (r *read) Read(p []byte) (int, error) { return r.from.Read(p) }

// serve connects a stream with what the server wants to reach.
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
	ctx, cancel := context.WithTimeout(r.Context(), reachTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer conn.Close()
	carry(w, r, conn.(*net.TCPConn))
}
