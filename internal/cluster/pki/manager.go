package pki

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options say what a cluster's certificates are for. The zero value of a field means its default.
type Options struct {
	Dir string // directory of the files: <data-dir>/pki

	NodeName     string   // name of this machine, which servers here are reached at
	Addresses    []string // addresses that servers here listen on and are reached at
	ServiceCIDRs []string // the first address of each is the API server's
	Domain       string   // domain of the cluster: cluster.local
	SANs         []string // further names and addresses of the API server
	Leaves       []Leaf   // leaves that not every cluster has, such as NodeLeaves

	AuthorityLife, LeafLife time.Duration // ten years, one year

	// OnChange is called by Run with the authorities and leaves that were replaced, and again as long as it fails.
	OnChange func(ctx context.Context, names []string) error
	Now      func() time.Time
	Log      *slog.Logger
}

const (
	// checkInterval bounds how long Run sleeps: timers do not notice that the clock was set or the machine was suspended.
	checkInterval = time.Minute
	// shortestSleep keeps certificates with very short lifetimes from keeping Run busy.
	shortestSleep = 100 * time.Millisecond
)

// Manager holds the certificates of a cluster and renews them. What it returns is always current.
type Manager struct {
	o       Options
	mu      sync.Mutex // held during a reconciliation; guards leaves and changed
	leaves  []Leaf
	changed []string // names that OnChange has not been called with yet
	current atomic.Pointer[state]
	wake    chan struct{}
}

// state is the result of one reconciliation.
type state struct {
	authorities map[string]*Authority
	pairs       map[string]*pair
	accounts    *accounts
	stamps      []stamp
	from, until time.Time // between these times nothing is to be renewed
}

// Open makes or repairs all certificates of a cluster and returns their manager.
func Open(o Options) (*Manager, error) {
	if o.Domain == "" {
		o.Domain = "cluster.local"
	}
	if o.AuthorityLife == 0 {
		o.AuthorityLife = defaultAuthorityLife
	}
	if o.LeafLife == 0 {
		o.LeafLife = defaultLeafLife
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	for _, cidr := range o.ServiceCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return nil, fmt.Errorf("the service addresses: %w", err)
		}
	}
	m := &Manager{o: o, wake: make(chan struct{}, 1)}
	if err := m.Ensure(append(o.leaves(), o.Leaves...)...); err != nil {
		return nil, err
	}
	return m, nil
}

// Ensure adds leaves, or changes those of the same name, and makes them.
func (m *Manager) Ensure(leaves ...Leaf) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := slices.Clone(m.leaves)
	for _, l := range leaves {
		if err := l.check(); err != nil {
			return err
		}
		all = append(slices.DeleteFunc(all, func(other Leaf) bool { return other.Name == l.Name }), l)
	}
	before := m.leaves
	m.leaves = all
	err := m.reconcile()
	if err != nil {
		m.leaves = before
	}
	if len(m.changed) > 0 {
		m.poke()
	}
	return err
}

// Run renews certificates until ctx ends. It sleeps until one is to be renewed, but checks the clock and the files at least once a minute.
func (m *Manager) Run(ctx context.Context) {
	for failed := false; ; {
		sleep, wake := checkInterval, m.wake
		if failed {
			wake = nil // connections must not make it try in a loop
		} else {
			sleep = min(max(m.current.Load().until.Sub(m.o.Now()), shortestSleep), checkInterval)
		}
		timer := time.NewTimer(sleep)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-wake:
			timer.Stop()
		case <-timer.C:
		}
		failed = false
		if err := m.check(); err != nil {
			m.o.Log.Error("certificates cannot be renewed", "err", err)
			failed = true
		}
		if err := m.tell(ctx); err != nil {
			m.o.Log.Error("renewed certificates are not in use everywhere", "err", err)
			failed = true
		}
	}
}

// check reconciles again if a certificate is to be renewed or a file has changed.
func (m *Manager) check() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.current.Load()
	if s.holds(m.o.Now()) && slices.Equal(s.stamps, stampsOf(m.paths())) {
		return nil
	}
	return m.reconcile()
}

// tell calls OnChange with the names that changed.
func (m *Manager) tell(ctx context.Context) error {
	m.mu.Lock()
	names := m.changed
	m.changed = nil
	m.mu.Unlock()
	if len(names) == 0 || m.o.OnChange == nil {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	err := m.o.OnChange(ctx, names)
	if err != nil {
		m.mu.Lock()
		m.changed = append(m.changed, names...)
		m.mu.Unlock()
	}
	return err
}

// holds reports whether nothing is to be renewed at a time.
func (s *state) holds(now time.Time) bool { return !now.Before(s.from) && now.Before(s.until) }

// reconciliation is one pass over the directory: its time, and the files that it has to write.
type reconciliation struct {
	dir                     string
	now                     time.Time
	authorityLife, leafLife time.Duration
	log                     *slog.Logger
	files                   []file
}

func (l *reconciliation) write(path string, data []byte) { l.files = append(l.files, file{path, data}) }

// reconcile reconciles the directory. If a certificate cannot be made, the others are, and its old one stays in use.
func (m *Manager) reconcile() error {
	if err := os.MkdirAll(m.o.Dir, 0o700); err != nil {
		return err
	}
	unlock, err := lockDir(m.o.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	for _, dir := range m.dirs() {
		if err := prepare(dir); err != nil {
			return err
		}
	}
	for _, path := range m.paths() {
		if err := restrict(path, 0o600); err != nil {
			m.o.Log.Warn("certificates are not protected", "err", err)
		}
	}
	l := &reconciliation{dir: m.o.Dir, now: m.o.Now(), authorityLife: m.o.AuthorityLife, leafLife: m.o.LeafLife, log: m.o.Log}
	stamps := stampsOf(m.paths())
	old := m.current.Load()
	first := old == nil
	if first {
		old = &state{}
	}
	next, err := l.all(m.leaves, old)
	if err != nil && first {
		return err
	}
	if len(l.files) > 0 {
		if failed := writeAll(l.files); failed != nil {
			return errors.Join(err, fmt.Errorf("writing certificates: %w", failed))
		}
		stamps = stampsOf(m.paths())
	}
	next.stamps = stamps
	next.setTerm(l)
	m.current.Store(next)
	m.changed = append(m.changed, next.since(old)...)
	return err
}

// all returns the state that there should be. What cannot be made is taken from the old state.
func (l *reconciliation) all(leaves []Leaf, old *state) (*state, error) {
	next := &state{authorities: map[string]*Authority{}, pairs: map[string]*pair{}}
	var errs []error
	for _, name := range authorities {
		a, err := l.authority(name)
		if err != nil {
			errs = append(errs, err)
			a = old.authorities[name]
		}
		next.authorities[name] = a
	}
	for _, want := range leaves {
		a := next.authorities[want.Authority]
		if a == nil {
			continue // its authority's error is reported already
		}
		p, err := l.leaf(want, a)
		if err != nil {
			errs = append(errs, err)
			p = old.pairs[want.Name]
		}
		if p != nil {
			next.pairs[want.Name] = p
		}
	}
	var err error
	if next.accounts, err = l.accounts(); err != nil {
		errs = append(errs, err)
		next.accounts = old.accounts
	}
	return next, errors.Join(errs...)
}

// setTerm sets between which times nothing is to be renewed.
func (s *state) setTerm(l *reconciliation) {
	// A certificate that could not be renewed is checked again when it expires.
	term := func(c *x509.Certificate, due time.Time) {
		if c.NotBefore.After(s.from) {
			s.from = c.NotBefore
		}
		if !l.now.Before(due) {
			due = c.NotAfter
		}
		if s.until.IsZero() || due.Before(s.until) {
			s.until = due
		}
	}
	for _, a := range s.authorities {
		if a.foreign {
			term(a.cert, renewAt(a.cert))
		} else {
			term(a.cert, l.authorityEnds(a.cert))
		}
	}
	for _, p := range s.pairs {
		term(p.tls.Leaf, renewAt(p.tls.Leaf))
	}
}

// since returns the names of the authorities and leaves that differ from an earlier state.
func (s *state) since(old *state) (names []string) {
	for _, name := range authorities {
		if a := old.authorities[name]; a != nil && string(a.pem) != string(s.authorities[name].pem) {
			names = append(names, name)
		}
	}
	for name, p := range s.pairs {
		if o := old.pairs[name]; o != nil && string(o.certPEM) != string(p.certPEM) {
			names = append(names, name)
		}
	}
	if old.accounts != nil && !slices.EqualFunc(old.accounts.publics, s.accounts.publics, samePublicKey) {
		names = append(names, accountKeys)
	}
	return names
}

func (m *Manager) paths() []string {
	var paths []string
	add := func(name string) { paths = append(paths, m.file(name, ".crt"), m.file(name, ".key")) }
	for _, name := range authorities {
		add(name)
	}
	for _, l := range m.leaves {
		add(l.Name)
	}
	return append(paths, m.file(accountKeys, ".key"), m.file(accountKeys, ".pub"))
}

func (m *Manager) dirs() []string {
	dirs := []string{m.o.Dir}
	for _, path := range m.paths() {
		if dir := filepath.Dir(path); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

func (m *Manager) file(name, ending string) string {
	return filepath.Join(m.o.Dir, filepath.FromSlash(name)+ending)
}

// state returns the current state. If a certificate in it is to be renewed, Run is woken: the clock may have been set.
func (m *Manager) state() *state {
	s := m.current.Load()
	if !s.holds(m.o.Now()) {
		m.poke()
	}
	return s
}

func (m *Manager) poke() {
	select {
	case m.wake <- struct{}{}:
	default: // Run is awake already
	}
}
