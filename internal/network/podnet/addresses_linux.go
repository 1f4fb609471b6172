package podnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// addresses allocates the addresses of the node's ranges. Its files are those of CNI's host-local, so that either continues from what the other
// left: a file named by each address, with its owner in it, and last_reserved_ip.N with the address last allocated from the Nth range.
type addresses struct {
	dir    string
	mu     sync.Mutex
	owners map[netip.Addr]owner // the contents of the files
}

// owner is a link of a sandbox.
type owner struct{ sandbox, link string }

const lastReserved = "last_reserved_ip."

func openAddresses(dir string) (*addresses, error) {
	a := &addresses{dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return a, a.load()
}

// load reads all files. a.mu must be held, unless no other goroutine uses a yet.
func (a *addresses) load() error {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return err
	}
	a.owners = make(map[netip.Addr]owner, len(entries))
	for _, e := range entries {
		address, err := netip.ParseAddr(e.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join(a.dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		sandbox, link, _ := strings.Cut(strings.TrimSpace(string(data)), "\n")
		a.owners[address] = owner{strings.TrimSpace(sandbox), link}
	}
	return nil
}

// reserve allocates an address of each range for an owner. Addresses that it has already are kept.
func (a *addresses) reserve(o owner, ranges []netip.Prefix) ([]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	has := a.ownedBy(o)
	var out []netip.Addr
	for i, r := range ranges {
		if at := slices.IndexFunc(has, r.Contains); at >= 0 {
			out = append(out, has[at])
			continue
		}
		address, err := a.allocate(o, i, r)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("failed to allocate for range %d: %w", i, err), a.drop(o))
		}
		out = append(out, address)
	}
	return out, nil
}

// allocate allocates the next free address of a range after the last one allocated, so that a released address is reused as late as possible.
func (a *addresses) allocate(o owner, index int, r netip.Prefix) (netip.Addr, error) {
	first, last := bounds(r)
	mark := filepath.Join(a.dir, lastReserved+strconv.Itoa(index))
	begin := first // the gateway's address, which is never allocated
	if data, err := os.ReadFile(mark); err == nil {
		if given, err := netip.ParseAddr(strings.TrimSpace(string(data))); err == nil && first.Compare(given) <= 0 && given.Compare(last) <= 0 {
			begin = given
		}
	}
	for at := begin; ; {
		if at = at.Next(); last.Less(at) || !at.IsValid() {
			at = first
		}
		if _, used := a.owners[at]; !used && at != gateway(r) {
			err := a.write(at, o)
			if err == nil {
				return at, os.WriteFile(mark, []byte(at.String()), 0o600)
			}
			if !errors.Is(err, os.ErrExist) {
				return netip.Addr{}, err
			}
		}
		if at == begin {
			return netip.Addr{}, fmt.Errorf("no IP addresses available in range set: %s-%s", first, last)
		}
	}
}

// write creates the file of an address. It fails if there is one.
func (a *addresses) write(address netip.Addr, o owner) error {
	path := filepath.Join(a.dir, address.String())
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(o.sandbox + "\r\n" + o.link)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	a.owners[address] = o
	return nil
}

// release frees the addresses of an owner.
func (a *addresses) release(o owner) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.drop(o)
}

func (a *addresses) drop(o owner) (failed error) {
	for _, address := range a.ownedBy(o) {
		if err := ignoreMissing(os.Remove(filepath.Join(a.dir, address.String()))); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		delete(a.owners, address)
	}
	return failed
}

func (a *addresses) ownedBy(o owner) (out []netip.Addr) {
	for address, current := range a.owners {
		if current == o {
			out = append(out, address)
		}
	}
	return out
}

// has reports whether an owner has an address.
func (a *addresses) has(o owner, address netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.owners[address] == o
}

// all returns the owners that have addresses.
func (a *addresses) all() (out []owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.owners {
		if !slices.Contains(out, o) {
			out = append(out, o)
		}
	}
	return out
}

// checkFree returns an error if a range has no free address.
func (a *addresses) checkFree(ranges []netip.Prefix) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range ranges {
		first, last := bounds(r)
		at := first.Next()
		for _, used := a.owners[at]; used && at != last; _, used = a.owners[at] {
			at = at.Next()
		}
		if _, used := a.owners[at]; used {
			return fmt.Errorf("no IP addresses available in range set: %s-%s", first, last)
		}
	}
	return nil
}

// gateway returns the address of the node in a pod CIDR: the first.
func gateway(r netip.Prefix) netip.Addr { return r.Masked().Addr().Next() }

// bounds returns the first and the last usable address of a range: not the network address and, for IPv4, not the broadcast address.
func bounds(r netip.Prefix) (first, last netip.Addr) {
	bytes := r.Masked().Addr().AsSlice()
	for bit := r.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ = netip.AddrFromSlice(bytes)
	if last.Is4() {
		last = last.Prev()
	}
	return gateway(r), last
}
