package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Handler takes the plugins of one type. Calls for one socket do not overlap.
type Handler interface {
	// Validate returns why a plugin cannot be registered.
	Validate(name, endpoint string, versions []string) error
	// Register has the plugin used from now on. If it fails it is called again later.
	Register(ctx context.Context, name, endpoint string, versions []string) error
	// Deregister is called when the socket of a registered plugin is gone.
	Deregister(ctx context.Context, name, endpoint string)
}

// Options of Run.
type Options struct {
	Dir      string
	Handlers map[string]Handler // by type: CSIPlugin, DevicePlugin, DRAPlugin
	Log      *slog.Logger
}

// Limits of what is found below the directory.
const (
	maxSockets = 256
	maxDirs    = 64
)

// How long is waited before a plugin that could not be registered is tried again; the wait doubles each time.
const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = 2*time.Minute + 2*time.Second
)

// The timeouts of calls to a plugin's registration socket.
const (
	infoTimeout   = 10 * time.Second
	notifyTimeout = 5 * time.Second
)

// identity tells a socket from another one that took its place.
type identity struct {
	device, inode uint64
	changed       int64
}

// Run registers plugins until ctx ends. Those that are registered stay so.
func Run(ctx context.Context, o Options) error {
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return fmt.Errorf("failed to create the directory of plugins' sockets: %w", err)
	}
	w, err := newWatch()
	if err != nil {
		return fmt.Errorf("failed to watch for plugins: %w", err)
	}
	defer context.AfterFunc(ctx, func() { w.close() })()
	r := &registrar{options: o, sockets: map[string]*socket{}}
	defer r.wait()
	for {
		dirs, found := list(o.Dir)
		added := false
		for _, dir := range dirs {
			isNew, err := w.add(dir)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				o.Log.Warn("failed to watch a directory of plugins", "directory", dir, "err", err)
			}
			added = added || isNew
		}
		if added {
			continue // something may have been put there before it was watched
		}
		r.update(ctx, found)
		if err := w.wait(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("failed to watch for plugins: %w", err)
		}
	}
}

// list returns a directory and those below it, and the sockets in them. What begins with a dot is left out.
func list(root string) (dirs []string, sockets map[string]identity) {
	sockets = map[string]identity{}
	_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil // removed meanwhile
		case path != root && strings.HasPrefix(e.Name(), "."):
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.IsDir() && len(dirs) < maxDirs:
			dirs = append(dirs, path)
		case e.IsDir():
			return fs.SkipDir
		case e.Type()&fs.ModeSocket != 0 && len(sockets) < maxSockets:
			if id, ok := identify(path); ok {
				sockets[path] = id
			}
		}
		return nil
	})
	return dirs, sockets
}

// registrar has a goroutine for each socket.
type registrar struct {
	options Options
	group   sync.WaitGroup
	sockets map[string]*socket
}

type socket struct {
	id   identity
	gone context.CancelFunc
	done chan struct{} // closed when it was deregistered
}

func (r *registrar) wait() { r.group.Wait() }

// update starts registering the sockets that are new, and deregisters those that are gone.
func (r *registrar) update(ctx context.Context, found map[string]identity) {
	for path, s := range r.sockets {
		if id, ok := found[path]; !ok || id != s.id {
			s.gone()
		}
	}
	for path, id := range found {
		before := r.sockets[path]
		if before != nil && before.id == id {
			continue
		}
		life, gone := context.WithCancel(ctx)
		s := &socket{id: id, gone: gone, done: make(chan struct{})}
		r.sockets[path] = s
		r.group.Go(func() {
			defer close(s.done)
			if before != nil {
				<-before.done
			}
			r.serve(ctx, life, path)
		})
	}
	for path, s := range r.sockets {
		if _, ok := found[path]; !ok {
			select {
			case <-s.done:
				delete(r.sockets, path)
			default: // forgotten when something changes next
			}
		}
	}
}

// serve registers a plugin, and deregisters it when its socket is gone. ctx ends when this process does, life also when the socket is gone.
func (r *registrar) serve(ctx, life context.Context, path string) {
	var failed string
	for wait := firstRetry; life.Err() == nil; wait = min(2*wait, lastRetry) {
		info, handler, err := r.register(life, path)
		if err == nil {
			r.options.Log.Info("registered a plugin", "type", info.Type, "name", info.Name, "endpoint", info.Endpoint)
			<-life.Done()
			if ctx.Err() == nil {
				handler.Deregister(ctx, info.Name, info.Endpoint)
				r.options.Log.Info("deregistered a plugin whose socket is gone", "type", info.Type, "name", info.Name)
			}
			return
		}
		if text := err.Error(); text != failed && life.Err() == nil {
			r.options.Log.Warn("failed to register a plugin; retrying", "socket", path, "err", err)
			failed = text
		}
		select {
		case <-life.Done():
		case <-time.After(wait):
		}
	}
}

// register asks a plugin what it is, registers it and tells it so.
func (r *registrar) register(ctx context.Context, path string) (*registration.PluginInfo, Handler, error) {
	connection, err := Connect(path)
	if err != nil {
		return nil, nil, err
	}
	defer connection.Close()
	plugin := registration.NewRegistrationClient(connection)
	calling, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	info, err := plugin.GetInfo(calling, &registration.InfoRequest{})
	if err != nil {
		return nil, nil, fmt.Errorf("RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket %s, err: %w", path, err)
	}
	if info.Endpoint == "" {
		info.Endpoint = path
	}
	refuse := func(err error) error {
		_ = notify(ctx, plugin, err.Error()) // it is tried again either way
		return err
	}
	handler := r.options.Handlers[info.Type]
	if handler == nil {
		return nil, nil, refuse(fmt.Errorf("RegisterPlugin error -- no handler registered for plugin type: %s at socket %s", info.Type, path))
	}
	if err := handler.Validate(info.Name, info.Endpoint, info.SupportedVersions); err != nil {
		return nil, nil, refuse(fmt.Errorf("RegisterPlugin error -- plugin validation failed with err: %w", err))
	}
	if err := handler.Register(ctx, info.Name, info.Endpoint, info.SupportedVersions); err != nil {
		return nil, nil, refuse(fmt.Errorf("RegisterPlugin error -- plugin registration failed with err: %w", err))
	}
	if err := notify(ctx, plugin, ""); err != nil {
		handler.Deregister(ctx, info.Name, info.Endpoint)
		return nil, nil, fmt.Errorf("RegisterPlugin error -- failed to send registration status at socket %s, err: %w", path, err)
	}
	return info, handler, nil
}

// notify tells a plugin whether it is registered: problem says why it is not.
func notify(ctx context.Context, plugin registration.RegistrationClient, problem string) error {
	ctx, cancel := context.WithTimeout(ctx, notifyTimeout)
	defer cancel()
	_, err := plugin.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{PluginRegistered: problem == "", Error: problem})
	return err
}

// maxMessage bounds what a plugin may answer.
const maxMessage = 16 << 20

// reconnect is how soon a plugin that does not listen is tried again: soon, as that costs nothing on the same machine.
var reconnect = grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}, MinConnectTimeout: 3 * time.Second}

// Connect returns a connection to a plugin's socket: a path, or one after unix://. It connects with the first call, and rests when it is not used.
func Connect(endpoint string) (*grpc.ClientConn, error) {
	path := strings.TrimPrefix(endpoint, "unix://")
	connection, err := grpc.NewClient("passthrough:///"+path, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"),
		grpc.WithIdleTimeout(time.Minute), grpc.WithConnectParams(reconnect), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		}))
	if err != nil {
		return nil, fmt.Errorf("failed to connect to the plugin at %s: %w", endpoint, err)
	}
	return connection, nil
}
