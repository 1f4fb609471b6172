package dns

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// resolvedConf is the resolv.conf in which systemd-resolved lists its own upstream servers.
	resolvedConf = "/run/systemd/resolve/resolv.conf"
	// resolvConfCheckInterval is the least time between two checks whether the file has changed.
	resolvConfCheckInterval = 2 * time.Second
	// maxResolvers bounds the servers that are used.
	maxResolvers = 8
	maxConf      = 64 << 10
	dnsPort      = 53
)

// resolvers holds the upstream servers of a resolv.conf. The file is loaded again when it has changed.
type resolvers struct {
	file      string
	upstreams []netip.AddrPort // servers that are tried before those of the file
	// isSelf reports whether a server is this one, which must not forward to itself.
	isSelf func(netip.AddrPort) bool

	mu          sync.Mutex
	checkedAt   time.Time
	loadedStamp stamp // the version of the file that servers and loadErr are from
	servers     []netip.AddrPort
	loadErr     error
}

// stamp identifies one version of a file.
type stamp struct {
	modified time.Time
	size     int64
	exists   bool
}

func stampOf(file string) stamp {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size(), true}
}

// all returns the servers in the order in which they are tried, and the error of loading the file if there was one.
func (r *resolvers) all(now time.Time) ([]netip.AddrPort, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.checkedAt.IsZero() || now.Sub(r.checkedAt) >= resolvConfCheckInterval || now.Before(r.checkedAt) {
		r.checkedAt = now
		if s := stampOf(r.file); r.servers == nil && r.loadErr == nil || s != r.loadedStamp {
			r.loadedStamp = s
			r.servers, r.loadErr = r.load()
		}
	}
	usable := r.servers
	if slices.ContainsFunc(r.servers, r.isSelf) {
		usable = slices.DeleteFunc(slices.Clone(r.servers), r.isSelf)
	}
	if len(usable) == 0 && r.loadErr == nil {
		return nil, errors.New("there is no upstream server for names outside the cluster: add a nameserver to the node's resolv.conf")
	}
	return usable, r.loadErr
}

func (r *resolvers) load() ([]netip.AddrPort, error) {
	if r.file == "" {
		return r.upstreams, nil
	}
	list, err := readResolvConf(r.file)
	if err != nil {
		return r.upstreams, err
	}
	// A resolver on the loopback works only in its own network namespace, which need not be this one: its upstream servers do.
	if !slices.ContainsFunc(list, func(a netip.AddrPort) bool { return !a.Addr().IsLoopback() }) {
		if behind, err := readResolvConf(resolvedConf); err == nil {
			list = append(list, behind...)
		}
	}
	list = append(slices.Clone(r.upstreams), list...)
	return list[:min(len(list), maxResolvers)], nil
}

// readResolvConf returns the servers of a resolv.conf. Like other resolvers it ignores lines that it does not understand.
func readResolvConf(file string) ([]netip.AddrPort, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("failed to read the upstream servers for names outside the cluster: %w", err)
	}
	defer f.Close()
	var out []netip.AddrPort
	lines := bufio.NewScanner(io.LimitReader(f, maxConf))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(words[1]); err == nil && !addr.IsUnspecified() {
			out = append(out, netip.AddrPortFrom(addr, dnsPort))
		}
	}
	return out, lines.Err()
}
