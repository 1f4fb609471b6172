package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"skiff/internal/bundle"
	"skiff/internal/cluster"
	"skiff/internal/cluster/datadir"
	"skiff/internal/cluster/process"
)

// Options configure a cluster of local nodes. The zero value of a field means what the cluster has, or the default of a new one.
type Options struct {
	DataDir, Name string
	Nodes         int      // 0: those that exist
	Port          int      // 0: the one that the cluster has, or a free one
	Memory        int64    // limit of each node; negative: as it is
	Server, Agent []string // more flags of the server and of agents; none: those of the last start
}

// Up starts everything of a cluster of local nodes that does not run, and returns when all nodes are Ready.
func Up(ctx context.Context, o Options) (l *Layout, started bool, err error) {
	if os.Geteuid() != 0 {
		return nil, false, errors.New("only root can make local nodes: use sudo")
	}
	dataDir, err := bundle.Resolve(o.DataDir)
	if err != nil {
		return nil, false, err
	}
	if err := datadir.Prepare(o.DataDir); err != nil { // checks the symbolic links on the way to it too
		return nil, false, err
	}
	done, err := lockNodes(ctx, dataDir)
	if err != nil {
		return nil, false, err
	}
	defer done()
	l, listener, err := o.place(ctx, dataDir)
	if listener != nil {
		defer listener.Close() // the server has it too by then
	}
	if err != nil {
		return nil, false, err
	}
	began := time.Now()
	newNodes, err := l.start(ctx, listener)
	if err != nil {
		return nil, false, err
	}
	return l, len(newNodes) > 0, l.awaitNodes(ctx, began, newNodes, l.Nodes...)
}

// lockNodes locks the nodes of a data directory against other commands.
func lockNodes(ctx context.Context, dataDir string) (done func(), err error) {
	dir := filepath.Join(dataDir, "nodes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return process.LockDirectory(ctx, dir, fmt.Errorf("another skiff is busy with the nodes in %s", dataDir))
}

// place returns the layout, with its network made, so that a cluster that is created at the same time chooses other addresses.
func (o Options) place(ctx context.Context, dataDir string) (*Layout, *net.TCPListener, error) {
	if Exists(dataDir) {
		return o.layout(dataDir)
	}
	done, err := lockAddresses(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	l, listener, err := o.layout(dataDir)
	if err == nil {
		err = l.ensureUnderlay()
	}
	return l, listener, err
}

// lockAddresses locks the choice of addresses on this machine. The lock is an abstract socket, which ends with the process.
func lockAddresses(ctx context.Context) (done func(), err error) {
	for {
		lock, err := net.Listen("unix", "@skiff-nodes")
		if err == nil {
			return func() { lock.Close() }, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.New("another skiff is creating nodes on this machine: try again")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// layout returns the layout of the data directory, changed by the options, or a new one; and the listener for the API on this machine, unless the server has it.
func (o Options) layout(dataDir string) (l *Layout, listener *net.TCPListener, err error) {
	exists := Exists(dataDir)
	if o.Nodes > MaxNodes || o.Nodes < 1 && !exists {
		return nil, nil, fmt.Errorf("a cluster on one machine has 1 to %d nodes, not %d", MaxNodes, o.Nodes)
	}
	if exists {
		if l, err = Load(dataDir); err != nil {
			return nil, nil, err
		}
		if o.Port != 0 && o.Port != l.Port {
			return nil, nil, fmt.Errorf("the cluster in %s has its API on port %d; that cannot be changed", dataDir, l.Port)
		}
		if o.Name != "" && o.Name != l.Name {
			return nil, nil, fmt.Errorf("the cluster in %s is called %s, not %s", dataDir, l.Name, o.Name)
		}
	} else if l, err = o.begin(dataDir); err != nil {
		return nil, nil, err
	}
	if o.Memory >= 0 {
		l.Memory = o.Memory
	}
	if err := l.grow(max(o.Nodes, len(l.Nodes))); err != nil {
		return nil, nil, err
	}
	if o.Nodes != 0 && o.Nodes < len(l.Nodes) {
		return nil, nil, fmt.Errorf("the cluster in %s has %d nodes; they do not become %d by --nodes", dataDir, len(l.Nodes), o.Nodes)
	}
	if m, made, err := l.find(l.Nodes[0]); err != nil || made && m.runsSkiff() {
		return l, nil, errors.Join(err, l.save())
	}
	if len(o.Server) > 0 || len(o.Agent) > 0 {
		if l.Server, err = l.takeFiles(o.Server); err != nil {
			return nil, nil, err
		}
		l.Agent = o.Agent
	}
	if listener, err = l.listenOrFind(); err != nil {
		return nil, nil, fmt.Errorf("failed to listen for the API on this machine: %w", err)
	}
	return l, listener, l.save()
}

// handOver is how long a server that another process has begun to start may take until it runs or has ended.
const handOver = 5 * time.Second

// listenOrFind opens the API's port, unless the server runs already, which has it: then the listener is nil. A process that an earlier call had begun to
// make the server of, before it was killed, may hold the port for a moment before it can be recognised.
func (l *Layout) listenOrFind() (*net.TCPListener, error) {
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		listener, err := l.listen()
		if err == nil || !errors.Is(err, unix.EADDRINUSE) || time.Since(began) > handOver {
			return listener, err
		}
		if m, made, err := l.find(l.Nodes[0]); err != nil || made && m.runsSkiff() {
			return nil, err
		}
	}
}

// listen opens the API's port on this machine. A cluster without a port gets a free one.
func (l *Layout) listen() (listener *net.TCPListener, err error) {
	if l.Port != 0 {
		return listen(l.Port)
	}
	for port := cluster.DefaultPort; port < cluster.DefaultPort+portTries; port++ {
		if listener, err = listen(port); err == nil {
			l.Port = port
			return listener, nil
		}
	}
	return nil, err
}

// portTries is how many ports are tried for a cluster without a port.
const portTries = 100

func listen(port int) (*net.TCPListener, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// begin returns the layout of a new cluster.
func (o Options) begin(dataDir string) (*Layout, error) {
	for _, name := range []string{"etcd", "kubelet", "containerd"} {
		if fileExists(filepath.Join(dataDir, name)) {
			return nil, fmt.Errorf("%s holds a cluster that runs on this machine itself: give one with --nodes another --data-dir and --name", dataDir)
		}
	}
	l := &Layout{Name: o.Name, Port: o.Port, dataDir: dataDir}
	used, err := usedPrefixes(l.device())
	if err != nil {
		return nil, err
	}
	l.Subnet, err = chooseSubnet(used)
	return l, err
}

// start starts everything that does not run, and returns the nodes on which skiff was started. Agents wait for the server, so all start concurrently.
func (l *Layout) start(ctx context.Context, listener *net.TCPListener) (started map[string]bool, err error) {
	if err := each(func() error { return l.placePrograms(ctx) }, l.ensureUnderlay); err != nil {
		return nil, err
	}
	started = map[string]bool{}
	var mu sync.Mutex
	var starts []func() error
	server := make(chan struct{}) // closed once the server was started, or failed to start
	for _, n := range l.Nodes {
		starts = append(starts, func() error {
			if n.Server() {
				defer close(server)
			}
			m, err := l.ensureMachine(ctx, n)
			if err != nil {
				return err
			}
			began := false
			if n.Server() {
				began, err = l.startServer(m, listener)
			} else {
				began, err = m.startAgent(ctx, server)
			}
			if began {
				mu.Lock()
				defer mu.Unlock()
				started[n.Name] = true
			}
			return err
		})
	}
	return started, each(starts...)
}

// startServer starts the server of node 1, unless it runs. Without a listener it ran when the layout was made, and may have ended since.
func (l *Layout) startServer(m *machine, listener *net.TCPListener) (bool, error) {
	if listener == nil && !m.runsSkiff() {
		late, err := l.listenOrFind()
		if err != nil {
			return false, fmt.Errorf("failed to listen for the API on this machine: %w", err)
		}
		if late != nil {
			defer late.Close() // the server has it too by then
			listener = late
		}
	}
	return m.startServer(listener)
}

// each calls functions concurrently and returns when all have returned.
func each(functions ...func() error) error {
	var wg sync.WaitGroup
	failed := make([]error, len(functions))
	for i, f := range functions {
		wg.Go(func() { failed[i] = f() })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// ensureMachine starts the machine of a node, if it does not run, and connects it.
func (l *Layout) ensureMachine(ctx context.Context, n Node) (*machine, error) {
	m, made, err := l.find(n)
	if err != nil {
		return nil, err
	}
	if m != nil && !made { // the process that was setting it up was killed, or it would have finished
		if _, err := l.end(ctx, n); err != nil {
			return nil, err
		}
	}
	if m == nil || !made {
		if err := l.shareBundle(n); err != nil {
			return nil, err
		}
		if m, err = l.boot(ctx, n); err != nil {
			return nil, err
		}
	}
	return m, l.connect(m)
}

// awaitNodes waits until nodes are Ready. For those on which skiff was started, only what was reported since began counts.
func (l *Layout) awaitNodes(ctx context.Context, began time.Time, started map[string]bool, nodes ...Node) error {
	if err := l.awaitAPI(ctx); err != nil {
		return err
	}
	var waits []func() error
	for _, n := range nodes {
		since := began
		if !started[n.Name] {
			since = time.Time{}
		}
		waits = append(waits, func() error {
			if err := cluster.AwaitNode(ctx, l.dataDir, n.Name, since); err != nil {
				return fmt.Errorf("%w; its log is %s", err, l.log(n))
			}
			return nil
		})
	}
	if err := each(waits...); err != nil {
		return err
	}
	return l.removeTokens(nodes...)
}

func (l *Layout) awaitAPI(ctx context.Context) error {
	for {
		if fileExists(cluster.KubeconfigPath(l.dataDir)) {
			return nil
		}
		if m, _, err := l.find(l.Nodes[0]); err != nil || m == nil || !m.runsSkiff() {
			return errors.Join(err, fmt.Errorf("the server ended before it was ready: %s", process.LastLine(l.log(l.Nodes[0]))))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API was not ready in time; see %s", l.log(l.Nodes[0]))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// StartNode starts the machine of a node and skiff there, and returns when the node is Ready.
func StartNode(ctx context.Context, dataDir, name string) (started bool, err error) {
	l, n, done, err := openNode(ctx, dataDir, name)
	if err != nil {
		return false, err
	}
	defer done()
	if err := each(func() error { return l.placePrograms(ctx) }, l.ensureUnderlay); err != nil {
		return false, err
	}
	began := time.Now()
	m, err := l.ensureMachine(ctx, n)
	if err != nil {
		return false, err
	}
	if n.Server() {
		listener, failed := listen(l.Port)
		if failed == nil {
			defer listener.Close()
		}
		if started, err = m.startServer(listener); err != nil {
			err = errors.Join(err, failed)
		}
	} else {
		server := make(chan struct{})
		close(server)
		started, err = m.startAgent(ctx, server)
	}
	if err != nil {
		return started, err
	}
	if server, made, err := l.find(l.Nodes[0]); err != nil || !made || !server.runsSkiff() {
		return started, errors.Join(err, fmt.Errorf("node %s is on, but the server does not run, so its status is unknown: start node 1 too", n.Name))
	}
	return started, l.awaitNodes(ctx, began, map[string]bool{n.Name: started}, n)
}
