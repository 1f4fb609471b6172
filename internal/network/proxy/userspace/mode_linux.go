package userspace

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"skiff/internal/network/proxy/conntrack"
	"skiff/internal/network/proxy/iptables"
	"skiff/internal/network/proxy/model"
)

// Mode is the userspace mode of the service proxy.
type Mode struct {
	log       *slog.Logger
	rules     model.Mode
	addresses map[model.Family]netip.Addr // the node's addresses to listen on
	limits    Limits

	ctx    context.Context // ends when Close is called
	cancel context.CancelFunc
	wg     sync.WaitGroup // all goroutines of the mode

	connections, senders slots
	clientRoom           atomic.Int64 // how many more clients with session affinity may be recorded
	warnedAt             atomic.Int64 // when a warning was last logged, in Unix nanoseconds

	pools map[poolName]*pool
	state model.State // the State that the rules serve, with listeners as endpoints
}

// New returns the mode with DefaultLimits. It fails where iptables does not work, and on a node without an address.
func New(config model.Config) (*Mode, error) { return NewWithLimits(config, DefaultLimits()) }

// NewWithLimits returns the mode with the given limits.
func NewWithLimits(config model.Config, limits Limits) (*Mode, error) {
	if limits.Connections < 1 || limits.Senders < 1 || limits.Clients < 1 || limits.Attempts < 1 || len(limits.Dial) == 0 ||
		min(limits.Idle, limits.HalfClosed, limits.SenderIdle, limits.DialAll) <= 0 {
		return nil, fmt.Errorf("the limits of the service proxy mode userspace must be positive: %+v", limits)
	}
	if len(config.NodeIPs) == 0 {
		return nil, errors.New("the service proxy mode userspace needs an address of the node to listen on, and there is none")
	}
	rules, err := iptables.NewRedirect(config)
	if err != nil {
		return nil, err
	}
	log := config.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m := &Mode{
		log: log, rules: rules, limits: limits, addresses: map[model.Family]netip.Addr{}, pools: map[poolName]*pool{},
		connections: make(slots, limits.Connections), senders: make(slots, limits.Senders), state: model.State{Ports: map[model.Key]*model.Port{}},
	}
	for _, a := range config.NodeIPs {
		m.addresses[model.FamilyOf(a)] = a.Unmap()
	}
	m.clientRoom.Store(int64(limits.Clients))
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m, nil
}

// FlowsInKernel implements model.Mode: flows lead to the listeners, and Sync itself deletes stale ones.
func (m *Mode) FlowsInKernel() bool { return false }

// Intact implements model.Mode.
func (m *Mode) Intact(ctx context.Context) (bool, error) { return m.rules.Intact(ctx) }

// Close implements model.Mode: it closes listeners and connections. The rules stay: until the next process listens, clients are refused.
func (m *Mode) Close() error {
	m.cancel()
	for _, p := range m.pools {
		p.close()
	}
	clear(m.pools)
	m.wg.Wait()
	return m.rules.Close()
}

// Sync implements model.Mode. A listener is opened before a rule leads to it, and closed after the rule is removed.
func (m *Mode) Sync(ctx context.Context, state *model.State, changes model.Changes) error {
	if err := m.ctx.Err(); err != nil {
		return errors.New("the service proxy mode userspace is closed")
	}
	m.state.ServiceCIDRs = state.ServiceCIDRs
	redirects := model.Changes{All: changes.All}
	wanted := map[poolName]struct{}{}
	var unserved error
	put := func(key model.Key, p *model.Port) {
		old := m.state.Ports[key]
		if p == nil {
			if old != nil {
				delete(m.state.Ports, key)
				redirects.Ports = append(redirects.Ports, model.Change{Key: key, Old: old})
			}
			return
		}
		now, err := m.redirect(p, wanted)
		unserved = errors.Join(unserved, err)
		m.state.Ports[key] = now
		if !now.Equal(old) {
			redirects.Ports = append(redirects.Ports, model.Change{Key: key, Old: old, New: now})
		}
	}
	if changes.All {
		for key := range m.state.Ports {
			if state.Ports[key] == nil {
				put(key, nil)
			}
		}
		for key, p := range state.Ports {
			put(key, p)
		}
	} else {
		for _, c := range changes.Ports {
			put(c.Key, c.New)
		}
	}
	if changes.All || len(redirects.Ports) > 0 {
		if err := m.rules.Sync(ctx, &m.state, redirects); err != nil {
			return err
		}
	}
	if changes.All {
		m.closeUnused(maps.Keys(m.pools), wanted)
	} else {
		m.closeUnused(func(yield func(poolName) bool) {
			for _, c := range changes.Ports {
				if !yield(poolName{c.Key, false}) || !yield(poolName{c.Key, true}) {
					return
				}
			}
		}, wanted)
	}
	_, err := conntrack.DeleteStale(&m.state, redirects)
	return errors.Join(unserved, err)
}

// redirect returns the Port for the rules: with the listeners as endpoints, where it has endpoints.
func (m *Mode) redirect(p *model.Port, wanted map[poolName]struct{}) (*model.Port, error) {
	now := *p
	now.Affinity, now.Cluster, now.Local, now.Serving = 0, nil, nil, nil
	refused := func(err error) (*model.Port, error) {
		now.HasAnyEndpoint, now.Cluster, now.Local, now.Serving = false, nil, nil, nil
		return &now, err
	}
	address, ok := m.addresses[p.Key.Family]
	if !ok || p.Key.Protocol == model.SCTP {
		m.log.Debug("service port is rejected: mode userspace supports neither SCTP nor families without a node address", "service", p.Key.String())
		return refused(nil)
	}
	for _, part := range []struct {
		local bool
		from  []model.Endpoint
		to    *[]model.Endpoint
	}{{false, p.Cluster, &now.Cluster}, {true, p.Local, &now.Local}} {
		if len(part.from) == 0 {
			continue
		}
		name := poolName{p.Key, part.local}
		pool := m.pools[name]
		if pool == nil {
			var err error
			if pool, err = m.open(name, address); err != nil {
				return refused(err)
			}
			m.pools[name] = pool
		}
		wanted[name] = struct{}{}
		endpoints := make([]netip.AddrPort, len(part.from))
		for i, e := range part.from {
			endpoints[i] = e.AddrPort
		}
		pool.balancer.set(endpoints, p.Affinity)
		if pool.udp != nil {
			pool.udp.dropExcept(p.Serving)
			now.Serving = append(now.Serving, pool.at)
		}
		*part.to = []model.Endpoint{{AddrPort: pool.at, Local: true}}
	}
	return &now, nil
}

// closeUnused closes the candidates that no Port uses any more.
func (m *Mode) closeUnused(candidates iter.Seq[poolName], wanted map[poolName]struct{}) {
	for name := range candidates {
		if p := m.pools[name]; p != nil {
			if _, used := wanted[name]; !used {
				p.close()
				delete(m.pools, name)
			}
		}
	}
}

// warnInterval is the least time between two warnings: many connections fail for the same reason.
const warnInterval = 10 * time.Second

func (m *Mode) warn(what string, key model.Key, err error) {
	now := time.Now().UnixNano()
	if last := m.warnedAt.Load(); now-last > int64(warnInterval) && m.warnedAt.CompareAndSwap(last, now) {
		m.log.Warn(what, "service", key.String(), "error", err)
	}
}

// Clean removes the rules of the mode.
func Clean() error { return iptables.CleanRedirect() }
