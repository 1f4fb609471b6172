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
	// resolvedConf is where systemd-resolved says which servers it asks itself.
	resolvedConf = "/run/systemd/resolve/resolv.conf"
	// lookAgain is how often the file is looked at.
	lookAgain = 2 * time.Second
	// maxResolvers is how many servers are used of those that the file names.
	maxResolvers = 8
	maxConf      = 64 << 10
	dnsPort      = 53
)

// resolvers are the servers to ask, as a resolv.conf names them. The file is read again when it has changed.
type resolvers struct {
	file  string
	fixed []netip.AddrPort // if there is no file
	// except says which servers are not to be asked: they would ask this one.
	except func(netip.AddrPort) bool

	mu     sync.Mutex
	looked time.Time
	seen   stamp
	list   []netip.AddrPort
	err    error
}

// stamp tells one version of a file from another.
type stamp struct {
	modified time.Time
	size     int64
	there    bool
}

func stampOf(file string) stamp {
	info, err := os.Stat(file)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size(), true}
}

// all are the servers in the order in which they are to be asked.
func (r *resolvers) all(now time.Time) ([]netip.AddrPort, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looked.IsZero() || now.Sub(r.looked) >= lookAgain || now.Before(r.looked) {
		r.looked = now
		if s := stampOf(r.file); r.list == nil && r.err == nil || s != r.seen {
			r.seen = s
			r.list, r.err = r.load()
		}
	}
	usable := r.list
	if slices.ContainsFunc(r.list, r.except) {
		usable = slices.DeleteFunc(slices.Clone(r.list), r.except)
	}
	if len(usable) == 0 && r.err == nil {
		return nil, errors.New("there is no server to ask about names outside the cluster")
	}
	return usable, r.err
}

func (r *resolvers) load() ([]netip.AddrPort, error) {
	if r.file == "" {
		return r.fixed, nil
	}
	list, err := readResolvConf(r.file)
	if err != nil {
		return r.fixed, err
	}
	// A resolver on the loopback works only in the network namespace that it runs in, which need not be this one: then those it asks do.
	if !slices.ContainsFunc(list, func(a netip.AddrPort) bool { return !a.Addr().IsLoopback() }) {
		if behind, err := readResolvConf(resolvedConf); err == nil {
			list = append(list, behind...)
		}
	}
	list = append(slices.Clone(r.fixed), list...)
	return list[:min(len(list), maxResolvers)], nil
}

// readResolvConf reads which servers a resolv.conf names. Lines it does not understand are no error, as for every other resolver.
func readResolvConf(file string) ([]netip.AddrPort, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("which servers to ask about names outside the cluster: %w", err)
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
