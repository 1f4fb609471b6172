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

// addresses says which addresses of the node's ranges are in use, and by whom. On the disk it is as host-local has it, so that either goes on from
// what the other left: a file named by each address, with its owner in it, and last_reserved_ip.N with what was last given of the Nth range.
type addresses struct {
	dir    string
	mu     sync.Mutex
	owners map[netip.Addr]owner // what the files say
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

// load reads all files. The lock is held, or nobody else is there yet.
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

// reserve gives an owner an address of each range. One that has some already keeps them.
func (a *addresses) reserve(o owner, ranges []netip.Prefix) ([]netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	has := a.of(o)
	var out []netip.Addr
	for i, r := range ranges {
		if at := slices.IndexFunc(has, r.Contains); at >= 0 {
			out = append(out, has[at])
			continue
		}
		address, err := a.take(o, i, r)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("failed to allocate for range %d: %w", i, err), a.drop(o))
		}
		out = append(out, address)
	}
	return out, nil
}

// take gives an address of a range, the next after the last that was given, so that it is as long as can be until one is somebody else's.
func (a *addresses) take(o owner, index int, r netip.Prefix) (netip.Addr, error) {
	first, last := bounds(r)
	mark := filepath.Join(a.dir, lastReserved+strconv.Itoa(index))
	begin := first // the gateway's, which nobody gets
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

// write makes the file of an address, unless there is one.
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

// release takes an owner's addresses back.
func (a *addresses) release(o owner) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.drop(o)
}

func (a *addresses) drop(o owner) (failed error) {
	for _, address := range a.of(o) {
		if err := ignoreMissing(os.Remove(filepath.Join(a.dir, address.String()))); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		delete(a.owners, address)
	}
	return failed
}

func (a *addresses) of(o owner) (out []netip.Addr) {
	for address, is := range a.owners {
		if is == o {
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

// all are the owners that have addresses.
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

// full says which range has no address left.
func (a *addresses) full(ranges []netip.Prefix) error {
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

// gateway is the node's own address in a range of its pods: the first.
func gateway(r netip.Prefix) netip.Addr { return r.Masked().Addr().Next() }

// bounds are the first and the last address of a range that links can have: not the network's own, and in IPv4 not that of all at once.
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
