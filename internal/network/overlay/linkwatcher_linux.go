package overlay

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
)

// linkWatcher watches the kernel's links and addresses, and notifies of changes of those that the overlay depends on: the links with the node's
// addresses and the overlay's own interface. Pods' links come and go all the time.
type linkWatcher struct {
	events chan struct{} // receives an element after a relevant change
	lost   chan struct{} // closed when events were lost because the netlink buffer overflowed
	done   chan struct{}
	wg     sync.WaitGroup
	once   sync.Once

	mu        sync.Mutex
	filtered  bool // filter was called; before that every change is relevant
	links     []int
	names     []string
	addresses []netip.Addr
}

// watchLinks starts to watch, in the network namespace of the calling thread. Links with one of the names are always relevant.
func watchLinks(names ...string) (*linkWatcher, error) {
	f := &linkWatcher{events: make(chan struct{}, 1), lost: make(chan struct{}), done: make(chan struct{}), names: names}
	lost := func(error) { f.once.Do(func() { close(f.lost) }) }
	links, addresses := make(chan netlink.LinkUpdate), make(chan netlink.AddrUpdate)
	if err := netlink.LinkSubscribeWithOptions(links, f.done, netlink.LinkSubscribeOptions{ErrorCallback: lost}); err != nil {
		return nil, err
	}
	f.wg.Go(func() { // until done is closed, or the subscription fails
		for l := range links {
			f.notify(slices.Contains(f.names, l.Attrs().Name) || f.relevant(l.Attrs().Index, netip.Addr{}))
		}
	})
	if err := netlink.AddrSubscribeWithOptions(addresses, f.done, netlink.AddrSubscribeOptions{ErrorCallback: lost}); err != nil {
		f.close()
		return nil, err
	}
	f.wg.Go(func() {
		for a := range addresses {
			ip, _ := netip.AddrFromSlice(a.LinkAddress.IP)
			f.notify(f.relevant(a.LinkIndex, ip.Unmap()))
		}
	})
	return f, nil
}

// close stops watching and waits for the goroutines. It does nothing for nil, which watchLinks returns when it fails.
func (f *linkWatcher) close() {
	if f == nil {
		return
	}
	close(f.done)
	f.wg.Wait()
}

// filter sets which links and addresses are relevant from now on.
func (f *linkWatcher) filter(links []int, addresses []netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filtered, f.links, f.addresses = true, links, addresses
}

func (f *linkWatcher) relevant(link int, address netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.filtered || slices.Contains(f.links, link) || slices.Contains(f.addresses, address)
}

func (f *linkWatcher) notify(relevant bool) {
	if !relevant {
		return
	}
	select {
	case f.events <- struct{}{}:
	default:
	}
}
