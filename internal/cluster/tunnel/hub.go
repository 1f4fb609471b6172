package tunnel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	corev1 "k8s.io/api/core/v1"
)

// protocol is what the connection is upgraded to.
const protocol = "skiff-tunnel/1"

// How tunnels are kept.
const (
	quietTime = 15 * time.Second // after which the other side is asked whether it is there
	pingTime  = 10 * time.Second
	openTime  = 5 * time.Second // bounds how long a stream may take to open
	// maxStreams is how many connections one tunnel carries at a time.
	maxStreams = 250
)

// Hub is the server's end of all tunnels.
type Hub struct {
	o         HubOptions
	transport *http2.Transport

	mu     sync.Mutex
	links  map[string]*link // by node
	closed bool

	asking  sync.Mutex // held while Nodes are asked for; guards the following
	owners  *owners    // as the Nodes were when they were asked for; nil if they never were
	asked   time.Time
	refused []string // claims of nodes that are not believed, as they were logged
}

// HubOptions say what a hub needs to know of the cluster.
type HubOptions struct {
	// Nodes returns all nodes of the cluster.
	Nodes func(ctx context.Context) ([]*corev1.Node, error)
	// PodCIDRs are what all ranges of pod addresses are in; no range outside of them is believed.
	PodCIDRs []netip.Prefix
	// ServiceCIDRs are the addresses of services.
	ServiceCIDRs []netip.Prefix
	// TunnelServices has services reached through any tunnel: where the server's machine is no node.
	TunnelServices bool
	// OwnAddresses returns the addresses of the server's machine, which no node has; nil if there are none.
	OwnAddresses func() []netip.Addr
	// Direct connects without a tunnel.
	Direct func(ctx context.Context, network, address string) (net.Conn, error)
	Log    *slog.Logger
}

// NewHub returns a hub without tunnels.
func NewHub(o HubOptions) *Hub {
	return &Hub{o: o, links: map[string]*link{}, transport: &http2.Transport{AllowHTTP: true, DisableCompression: true, ReadIdleTimeout: quietTime, PingTimeout: pingTime}}
}

// link is a tunnel to a node.
type link struct {
	net.Conn
	node    string
	streams *http2.ClientConn
	gone    func(*link)
}

// How long what is known of nodes is taken for true. Their addresses and their pods' hardly ever change, but a node may be new.
const (
	fresh        = 5 * time.Second
	freshUnknown = 200 * time.Millisecond // for an address that is nobody's
)

// Close ends the tunnel and all that goes through it.
func (l *link) Close() error {
	l.gone(l)
	return l.Conn.Close()
}

// Serve makes a request, which a node has sent, its tunnel. An older one of the same node ends.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, node string) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), protocol) || r.ProtoMajor != 1 {
		http.Error(w, "this is for agents, which upgrade to "+protocol, http.StatusUpgradeRequired)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n\r\n"
	if _, err := conn.Write([]byte(answer)); err != nil || buffered.Reader.Buffered() > 0 { // the agent speaks only when spoken to
		conn.Close()
		return
	}
	if err := h.add(conn, node); err != nil {
		h.o.Log.Warn("a tunnel could not be made", "node", node, "error", err)
		conn.Close()
	}
}

func (h *Hub) add(conn net.Conn, node string) (err error) {
	l := &link{Conn: conn, node: node, gone: h.remove}
	if l.streams, err = h.transport.NewClientConn(l); err != nil {
		return err
	}
	h.mu.Lock()
	old, closed := h.links[node], h.closed
	if !closed {
		h.links[node] = l
	}
	h.mu.Unlock()
	if old != nil {
		old.Close()
	}
	if closed {
		l.Close()
		return errors.New("the server is stopping")
	}
	h.o.Log.Debug("a node has a tunnel", "node", node)
	return nil
}

func (h *Hub) remove(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.links[l.node] == l {
		delete(h.links, l.node)
	}
}

// Has reports whether a node has a tunnel.
func (h *Hub) Has(node string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.links[node] != nil
}

// Close ends all tunnels, and no more are made.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	var all []*link
	for _, l := range h.links {
		all = append(all, l)
	}
	h.mu.Unlock()
	for _, l := range all {
		l.Close()
	}
}

// Dial connects to a kubelet, a pod or a service: through the tunnel of the node that has it, or else directly.
func (h *Hub) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	l := h.find(ctx, address)
	if l == nil {
		return h.o.Direct(ctx, network, address)
	}
	conn, failed := l.dial(ctx, address)
	if failed == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	conn, err := h.o.Direct(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("through the tunnel of node %s: %w; directly: %w", l.node, failed, err)
	}
	return conn, nil
}

// find returns the tunnel that leads to an address.
func (h *Hub) find(ctx context.Context, address string) *link {
	h.mu.Lock()
	all := make([]*link, 0, len(h.links))
	for _, l := range h.links {
		all = append(all, l)
	}
	h.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil // a name
	}
	ip := to.Addr().Unmap()
	if slices.ContainsFunc(h.o.ServiceCIDRs, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		if h.o.TunnelServices {
			return all[0]
		}
		return nil
	}
	node := h.ownerOf(ctx, ip)
	if node == "" {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.links[node]
}

// ownerOf returns the node that an address belongs to; empty if it is nobody's.
func (h *Hub) ownerOf(ctx context.Context, ip netip.Addr) string {
	h.asking.Lock()
	defer h.asking.Unlock()
	node, age := h.owners.of(ip), time.Since(h.asked)
	if age < freshUnknown || node != "" && age < fresh {
		return node
	}
	nodes, err := h.o.Nodes(ctx)
	if err != nil {
		h.o.Log.Warn("failed to list nodes for tunnels", "error", err)
		return node
	}
	var own []netip.Addr
	if h.o.OwnAddresses != nil {
		own = h.o.OwnAddresses()
	}
	var refused []string
	h.owners, refused = h.o.decideOwners(nodes, own)
	h.asked = time.Now()
	for _, claim := range refused {
		if !slices.Contains(h.refused, claim) {
			h.o.Log.Warn("not reached through the tunnel of a node: " + claim)
		}
	}
	h.refused = refused
	return h.owners.of(ip)
}
