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

// Options say what cluster of local nodes is wanted. What is not said is as it was, or as it is by default.
type Options struct {
	DataDir, Name string
	Nodes         int      // 0: those that there are
	Port          int      // 0: the one that it had, or one that is free
	Memory        int64    // of each node; negative: as it was
	Server, Agent []string // more flags, of the server and of agents; none: those that they had
}

// Up starts a cluster of local nodes, or what of it does not run, and returns when all nodes are Ready.
func Up(ctx context.Context, o Options) (l *Layout, started bool, err error) {
	if os.Geteuid() != 0 {
		return nil, false, errors.New("nodes of namespaces need root")
	}
	dataDir, err := bundle.Resolve(o.DataDir)
	if err != nil {
		return nil, false, err
	}
	if err := datadir.Prepare(o.DataDir); err != nil { // also the links on the way to it
		return nil, false, err
	}
	done, err := takeTurns(ctx, dataDir)
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
	new, err := l.start(ctx, listener)
	if err != nil {
		return nil, false, err
	}
	return l, len(new) > 0, l.awaitNodes(ctx, began, new, l.Nodes...)
}

// takeTurns keeps other commands from changing the nodes meanwhile.
func takeTurns(ctx context.Context, dataDir string) (done func(), err error) {
	dir := filepath.Join(dataDir, "nodes")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return process.LockDirectory(ctx, dir, fmt.Errorf("another skiff is busy with the nodes in %s", dataDir))
}

// place is the layout with the network made, so that a cluster which is made at the same time chooses other addresses.
func (o Options) place(ctx context.Context, dataDir string) (*Layout, *net.TCPListener, error) {
	if Exists(dataDir) {
		return o.layout(dataDir)
	}
	done, err := chooseAlone(ctx)
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

// chooseAlone keeps others from choosing addresses on this machine meanwhile. The lock is a name in the machine's network, and goes with its process.
func chooseAlone(ctx context.Context) (done func(), err error) {
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
			return nil, errors.New("another skiff is busy with making nodes on this machine")
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// layout is the one that there was, with what is wanted now, or a new one. With it comes the listener for the API on this machine, unless the server has it.
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
		return nil, nil, fmt.Errorf("the API cannot be reached on this machine: %w", err)
	}
	return l, listener, l.save()
}

// handOver is how long it may take until a server that somebody else has begun to start is there, or has ended.
const handOver = 5 * time.Second

// listenOrFind opens the API's port, unless the server runs already: then it has it, and there is no listener. A process that an earlier call had begun to
// make the server of, before it was killed, may hold the port for a moment before it can be told what it is.
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

// listen opens the API's port on this machine. A cluster that has none yet takes one that is free.
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

// portTries is how many ports are tried for an API that was given none.
const portTries = 100

func listen(port int) (*net.TCPListener, error) {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
}

// begin is the layout of a cluster that is new.
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

// start starts what does not run, and says on which nodes something was. Agents wait for the server by themselves, so all start at once.
func (l *Layout) start(ctx context.Context, listener *net.TCPListener) (new map[string]bool, err error) {
	if err := each(func() error { return l.placePrograms(ctx) }, l.ensureUnderlay); err != nil {
		return nil, err
	}
	new = map[string]bool{}
	var mu sync.Mutex
	var bring []func() error
	server := make(chan struct{}) // closed once it was started, or could not be
	for _, n := range l.Nodes {
		bring = append(bring, func() error {
			if n.Server() {
				defer close(server)
			}
			m, err := l.ensureMachine(ctx, n)
			if err != nil {
				return err
			}
			began := false
			if n.Server() {
				began, err = m.startServer(listener)
			} else {
				began, err = m.startAgent(ctx, server)
			}
			if began {
				mu.Lock()
				defer mu.Unlock()
				new[n.Name] = true
			}
			return err
		})
	}
	return new, each(bring...)
}

// each calls functions at once and returns when all have returned.
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
	if m != nil && !made { // whoever began it is gone, or it would have finished
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

// awaitNodes waits until nodes are Ready: those where skiff is new, as it has said since it began.
func (l *Layout) awaitNodes(ctx context.Context, began time.Time, new map[string]bool, nodes ...Node) error {
	if err := l.awaitAPI(ctx); err != nil {
		return err
	}
	var waits []func() error
	for _, n := range nodes {
		since := began
		if !new[n.Name] {
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
	return l.forgetTokens(nodes...)
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
		return started, errors.Join(err, fmt.Errorf("node %s is on, but the server does not run: nobody says how the node is", n.Name))
	}
	return started, l.awaitNodes(ctx, began, map[string]bool{n.Name: started}, n)
}
