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

// protocol is the protocol that a connection is upgraded to.
const protocol = "skiff-tunnel/1"

const (
	// pingAfter is how long a tunnel may be silent before either side sends a ping, and pingTimeout how long the answer may take.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	// openTimeout bounds how long a stream may take to open.
	openTimeout = 5 * time.Second
	// maxStreams is how many streams one tunnel has at a time.
	maxStreams = 250
)

// Hub is the server's end of all tunnels.
type Hub struct {
	o         HubOptions
	transport *http2.Transport

	mu     sync.Mutex
	links  map[string]*link // by node
	closed bool

	listing       sync.Mutex // held while nodes are listed; guards the following
	owners        *owners    // by the nodes as listed last; nil if they never were
	listedAt      time.Time
	refusedClaims []string // claims of nodes that were refused, as they were logged
}

// HubOptions configure a hub.
type HubOptions struct {
	// Nodes returns all nodes of the cluster.
	Nodes func(ctx context.Context) ([]*corev1.Node, error)
	// PodCIDRs are the cluster's ranges of pod addresses; ranges of nodes outside of them are refused.
	PodCIDRs []netip.Prefix
	// ServiceCIDRs are the ranges of cluster IPs.
	ServiceCIDRs []netip.Prefix
	// TunnelServices has Services reached through any tunnel, for a server whose machine is not a node.
	TunnelServices bool
	// OwnAddresses returns the addresses of the server's machine, which no node has; nil if there are none.
	OwnAddresses func() []netip.Addr
	// Direct connects to an address without a tunnel.
	Direct func(ctx context.Context, network, address string) (net.Conn, error)
	Log    *slog.Logger
}

// NewHub returns a hub without tunnels.
func NewHub(o HubOptions) *Hub {
	return &Hub{o: o, links: map[string]*link{}, transport: &http2.Transport{AllowHTTP: true, DisableCompression: true, ReadIdleTimeout: pingAfter, PingTimeout: pingTimeout}}
}

// link is a tunnel to a node.
type link struct {
	net.Conn
	node    string
	streams *http2.ClientConn
	onClose func(*link)
}

// Nodes are listed again after ownerTTL, as their addresses and pod ranges hardly ever change, and after unknownTTL for an address that no node has, as a node may
// be new.
const (
	ownerTTL   = 5 * time.Second
	unknownTTL = 200 * time.Millisecond
)

// Close closes the tunnel and all its streams.
func (l *link) Close() error {
	l.onClose(l)
	return l.Conn.Close()
}

// Serve upgrades the request of a node to its tunnel. An older tunnel of the same node is closed.
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
	if _, err := conn.Write([]byte(answer)); err != nil || buffered.Reader.Buffered() > 0 { // the agent sends nothing before the server does
		conn.Close()
		return
	}
	if err := h.add(conn, node); err != nil {
		h.o.Log.Warn("failed to open the tunnel of a node", "node", node, "error", err)
		conn.Close()
	}
}

// add opens a tunnel on a connection.
func (h *Hub) add(conn net.Conn, node string) (err error) {
	l := &link{Conn: conn, node: node, onClose: h.remove}
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
	h.o.Log.Debug("opened the tunnel of a node", "node", node)
	return nil
}

// remove removes a tunnel that is closed.
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

// Close closes all tunnels, and refuses new ones.
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

// Dial connects to a kubelet, a pod or a Service: through the tunnel of the node that has the address, or directly if there is none or it fails.
func (h *Hub) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	l := h.find(ctx, address)
	if l == nil {
		return h.o.Direct(ctx, network, address)
	}
	conn, tunnelErr := l.dial(ctx, address)
	if tunnelErr == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	conn, err := h.o.Direct(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("failed to connect to %s through the tunnel of node %s: %w; and directly: %w", address, l.node, tunnelErr, err)
	}
	return conn, nil
}

// find returns the tunnel to an address, or nil.
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
		return nil // a host name
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

// ownerOf returns the node that an address belongs to; empty if it is no node's. It lists nodes if the last list is too old.
func (h *Hub) ownerOf(ctx context.Context, ip netip.Addr) string {
	h.listing.Lock()
	defer h.listing.Unlock()
	node, age := h.owners.of(ip), time.Since(h.listedAt)
	if age < unknownTTL || node != "" && age < ownerTTL {
		return node
	}
	nodes, err := h.o.Nodes(ctx)
	if err != nil {
		h.o.Log.Warn("failed to list nodes for tunnels", "error", err)
		return node
	}
	var serverIPs []netip.Addr
	if h.o.OwnAddresses != nil {
		serverIPs = h.o.OwnAddresses()
	}
	var refused []string
	h.owners, refused = h.o.decideOwners(nodes, serverIPs)
	h.listedAt = time.Now()
	for _, claim := range refused {
		if !slices.Contains(h.refusedClaims, claim) {
			h.o.Log.Warn("refused an address or range of a node for its tunnel: " + claim)
		}
	}
	h.refusedClaims = refused
	return h.owners.of(ip)
}
