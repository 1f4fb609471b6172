package overlay

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
)

// follower says when something happened to a link that matters here: one that has the node's address, or our own interface. Pods' links come and
// go all the time.
type follower struct {
	news chan struct{} // has something in it when something happened
	lost chan struct{} // closed when the kernel had more to say than could be heard
	done chan struct{}
	wg   sync.WaitGroup
	once sync.Once

	mu        sync.Mutex
	asked     bool // what matters: everything, until it is said
	links     []int
	names     []string
	addresses []netip.Addr
}

// follow begins to listen, in the network of the calling thread.
func follow(names ...string) (*follower, error) {
	f := &follower{news: make(chan struct{}, 1), lost: make(chan struct{}), done: make(chan struct{}), names: names}
	lost := func(error) { f.once.Do(func() { close(f.lost) }) }
	links, addresses := make(chan netlink.LinkUpdate), make(chan netlink.AddrUpdate)
	if err := netlink.LinkSubscribeWithOptions(links, f.done, netlink.LinkSubscribeOptions{ErrorCallback: lost}); err != nil {
		return nil, err
	}
	f.wg.Go(func() { // until done is closed, or the kernel was lost
		for l := range links {
			f.tell(slices.Contains(f.names, l.Attrs().Name) || f.matters(l.Attrs().Index, netip.Addr{}))
		}
	})
	if err := netlink.AddrSubscribeWithOptions(addresses, f.done, netlink.AddrSubscribeOptions{ErrorCallback: lost}); err != nil {
		f.close()
		return nil, err
	}
	f.wg.Go(func() {
		for a := range addresses {
			ip, _ := netip.AddrFromSlice(a.LinkAddress.IP)
			f.tell(f.matters(a.LinkIndex, ip.Unmap()))
		}
	})
	return f, nil
}

// close stops listening.
func (f *follower) close() {
	close(f.done)
	f.wg.Wait()
}

// watch says which links and addresses matter from now on.
func (f *follower) watch(links []int, addresses []netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.links, f.addresses = true, links, addresses
}

func (f *follower) matters(link int, address netip.Addr) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.asked || slices.Contains(f.links, link) || slices.Contains(f.addresses, address)
}

func (f *follower) tell(matters bool) {
	if !matters {
		return
	}
	select {
	case f.news <- struct{}{}:
	default:
	}
}
