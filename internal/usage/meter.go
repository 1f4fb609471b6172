package usage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// resolution is how long the metrics of a node are kept before it is asked again: metrics-server's default.
	resolution = 15 * time.Second
	// oldest is how far back a count may be that a rate is made of. An older one says little of what is used now.
	oldest = 90 * time.Second
	// firstWindow is the time between two counts that are taken for one request, when there was none for so long.
	firstWindow = time.Second + 500*time.Millisecond // kubelets keep a count for a second
	// timeout is how long a node may take to answer.
	timeout = 5 * time.Second
	// parallel is how many nodes are asked at once.
	parallel = 64
)

// Options of New. Read is required.
type Options struct {
	// Read asks a node for what it and its containers have used.
	Read func(ctx context.Context, node string) (*Reading, error)
	// Measured is called with the metrics of a node whenever it was asked. It may be nil.
	Measured func(*NodeMetrics)
	Clock    clock.Clock
	Log      *slog.Logger
}

// Meter measures what nodes and pods use, when somebody asks.
type Meter struct {
	opts  Options
	slots chan struct{} // holds a value for each node that is asked now

	mu       sync.Mutex
	nodes    map[string]*node // those that somebody has asked for lately
	dropping bool             // whether a timer calls drop
}

// node is what is known of a node.
type node struct {
	busy chan struct{} // holds a value while the node is asked
	used bool          // whether somebody has asked for it since drop was called; guarded by Meter.mu

	// The fields below belong to who holds busy.
	readAt  time.Time // when it was asked last
	last    *Reading  // its last answer
	metrics *NodeMetrics
	failing bool // whether it did not answer when it was asked last
}

// New returns a meter.
func New(opts Options) *Meter {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Meter{opts: opts, slots: make(chan struct{}, parallel), nodes: map[string]*node{}}
}

// Measure returns the metrics of nodes, by name: no older than resolution, and without the nodes that did not answer. It fails only when ctx ends.
func (m *Meter) Measure(ctx context.Context, names []string) (map[string]*NodeMetrics, error) {
	nodes := m.use(names)
	results := make([]*NodeMetrics, len(names))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { results[i] = m.measure(ctx, names[i], n) })
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	measured := make(map[string]*NodeMetrics, len(names))
	for i, name := range names {
		if results[i] != nil {
			measured[name] = results[i]
		}
	}
	return measured, nil
}

// use returns what is known of nodes, and keeps it for a while.
func (m *Meter) use(names []string) []*node {
	m.mu.Lock()
	defer m.mu.Unlock()
	nodes := make([]*node, len(names))
	for i, name := range names {
		n := m.nodes[name]
		if n == nil {
			n = &node{busy: make(chan struct{}, 1)}
			m.nodes[name] = n
		}
		n.used = true
		nodes[i] = n
	}
	if !m.dropping && len(m.nodes) > 0 {
		m.dropping = true
		time.AfterFunc(oldest, m.drop)
	}
	return nodes
}

// drop forgets the nodes that nobody has asked for since the last time, and calls itself again while there are others. So nothing is kept of a cluster that is
// left alone, or of nodes that are gone.
func (m *Meter) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.nodes {
		if !n.used {
			delete(m.nodes, name)
		}
		n.used = false
	}
	if m.dropping = len(m.nodes) > 0; m.dropping {
		time.AfterFunc(oldest, m.drop)
	}
}

// measure returns the metrics of a node; nil if it does not answer. Those who ask at the same time wait for one answer.
func (m *Meter) measure(ctx context.Context, name string, n *node) *NodeMetrics {
	select {
	case n.busy <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-n.busy }()
	if !n.readAt.IsZero() && m.opts.Clock.Since(n.readAt) < resolution {
		return n.metrics
	}
	metrics, err := m.ask(ctx, name, n)
	if ctx.Err() != nil {
		return nil // who asks next asks the node again
	}
	if err != nil && !n.failing {
		m.opts.Log.Warn("failed to measure what a node uses", "node", name, "err", err)
	}
	if metrics != nil && m.opts.Measured != nil {
		m.opts.Measured(metrics)
	}
	n.metrics, n.failing, n.readAt = metrics, err != nil, m.opts.Clock.Now()
	return metrics
}

// ask asks a node, twice if there is no count of it that is recent enough.
func (m *Meter) ask(ctx context.Context, name string, n *node) (*NodeMetrics, error) {
	before := n.last
	if before != nil && m.opts.Clock.Since(n.readAt) > oldest {
		before = nil
	}
	now, err := m.read(ctx, name)
	if err != nil {
		n.last = nil
		return nil, err
	}
	if before == nil && now.Node.Rate == nil {
		select {
		case <-m.opts.Clock.After(firstWindow):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		before = now
		if now, err = m.read(ctx, name); err != nil {
			return nil, err
		}
	}
	n.last = now
	return metricsOf(before, now), nil
}

func (m *Meter) read(ctx context.Context, name string) (*Reading, error) {
	select {
	case m.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-m.slots }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return m.opts.Read(ctx, name)
}
