package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"skiff/internal/kubelet/plugins"
	"skiff/internal/scheduling"
)

// Options of New.
type Options struct {
	Dir string // <kubelet directory>/device-plugins
	// Changed is called when Resources returns something else. It must not block.
	Changed func()
	// GoneAfter is how long the devices of a plugin that went away count as the node's; 5 minutes if zero.
	GoneAfter time.Duration
	Log       *slog.Logger
}

// Manager gives the devices of plugins to containers. It is safe for concurrent use.
type Manager struct {
	options Options
	group   sync.WaitGroup
	ctx     context.Context // of Run

	allocating sync.Mutex // held while devices are chosen, so that no two pods get the same

	mu        sync.Mutex
	resources map[string]*plugin
	pods      map[types.UID]map[string]containerDevices // by container
}

// plugin is the resource of a device plugin.
type plugin struct {
	devices map[string]bool // whether they are healthy, by ID
	stop    context.CancelFunc
	client  api.DevicePluginClient // nil if the plugin is gone
	options *api.DevicePluginOptions
}

const socketName = "kubelet.sock"

// maxDevices bounds the devices of a resource.
const maxDevices = 10_000

// New returns a manager that knows which devices containers have.
func New(o Options) (*Manager, error) {
	o.GoneAfter = cmp.Or(o.GoneAfter, 5*time.Minute)
	m := &Manager{options: o, resources: map[string]*plugin{}, pods: map[types.UID]map[string]containerDevices{}}
	return m, m.restore()
}

// Run takes registrations until ctx ends. Plugins see that the socket is a new one, and register again.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	m.ctx = ctx
	m.mu.Unlock()
	defer m.group.Wait()
	if err := os.MkdirAll(m.options.Dir, 0o750); err != nil {
		return fmt.Errorf("failed to create the directory of device plugins: %w", err)
	}
	if err := m.removeSockets(); err != nil {
		return fmt.Errorf("failed to remove the sockets of device plugins: %w", err)
	}
	l, err := net.Listen("unix", filepath.Join(m.options.Dir, socketName))
	if err != nil {
		return fmt.Errorf("failed to listen for device plugins: %w", err)
	}
	s := grpc.NewServer()
	api.RegisterRegistrationServer(s, &server{m: m})
	defer context.AfterFunc(ctx, s.Stop)()
	err = s.Serve(l)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (m *Manager) removeSockets() error {
	entries, err := os.ReadDir(m.options.Dir)
	for _, e := range entries {
		if e.Type()&fs.ModeSocket != 0 {
			err = errors.Join(err, os.Remove(filepath.Join(m.options.Dir, e.Name())))
		}
	}
	return err
}

// server is the registration service.
type server struct {
	api.UnsafeRegistrationServer
	m *Manager
}

// Register takes a plugin that listens on a socket beside this one.
func (s *server) Register(_ context.Context, r *api.RegisterRequest) (*api.Empty, error) {
	if err := validate(r.ResourceName, r.Version); err != nil {
		return nil, err
	}
	if filepath.Base(r.Endpoint) != r.Endpoint {
		return nil, fmt.Errorf("endpoint %q is not the name of a socket in %s", r.Endpoint, s.m.options.Dir)
	}
	return &api.Empty{}, s.m.add(r.ResourceName, filepath.Join(s.m.options.Dir, r.Endpoint), r.Options)
}

func validate(resource string, versions ...string) error {
	if !slices.Contains(versions, api.Version) {
		return fmt.Errorf("requested API version %q is not supported by kubelet. Supported version is %q", versions, api.Version)
	}
	if !scheduling.IsExtended(corev1.ResourceName(resource)) {
		return fmt.Errorf("the ResourceName %q is invalid", resource)
	}
	return nil
}

var _ plugins.Handler = (*Manager)(nil)

// Validate returns why a plugin that has a socket in the plugins' registry is not taken.
func (m *Manager) Validate(name, _ string, versions []string) error {
	return validate(name, versions...)
}

// Register takes a plugin that has a socket in the plugins' registry.
func (m *Manager) Register(ctx context.Context, name, endpoint string, _ []string) error {
	connection, err := plugins.Connect(endpoint)
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	options, err := api.NewDevicePluginClient(connection).GetDevicePluginOptions(ctx, &api.Empty{})
	if err != nil {
		return err
	}
	return m.add(name, endpoint, options)
}

// Deregister is called when such a socket is gone.
func (m *Manager) Deregister(_ context.Context, name, _ string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.resources[name]; p != nil && p.stop != nil {
		p.stop()
	}
}

// add follows the devices of a plugin from now on, in place of one that had its resource before.
func (m *Manager) add(name, endpoint string, options *api.DevicePluginOptions) error {
	connection, err := plugins.Connect(endpoint)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx == nil || m.ctx.Err() != nil {
		return errors.Join(errors.New("the kubelet is not ready for device plugins"), connection.Close())
	}
	ctx, stop := context.WithCancel(m.ctx)
	p := &plugin{stop: stop, client: api.NewDevicePluginClient(connection), options: options, devices: map[string]bool{}}
	if before := m.resources[name]; before != nil {
		p.devices = before.devices // until it tells of its own
		if before.stop != nil {
			before.stop()
		}
	}
	m.resources[name] = p
	m.group.Go(func() {
		defer connection.Close()
		m.follow(ctx, name, p)
	})
	return nil
}

// follow keeps what a plugin says of its devices until it goes away.
func (m *Manager) follow(ctx context.Context, name string, p *plugin) {
	stream, err := p.client.ListAndWatch(ctx, &api.Empty{})
	for err == nil {
		var list *api.ListAndWatchResponse
		if list, err = stream.Recv(); err != nil {
			break
		}
		devices := map[string]bool{}
		for _, d := range list.Devices[:min(len(list.Devices), maxDevices)] {
			devices[d.ID] = d.Health == api.Healthy
		}
		m.mu.Lock()
		p.devices = devices
		m.mu.Unlock()
		if err := m.save(); err != nil {
			m.options.Log.Warn("failed to write which device plugins there are", "err", err)
		}
		m.options.Changed()
	}
	m.mu.Lock()
	if m.resources[name] != p || m.ctx.Err() != nil { // another one has taken over, or the kubelet stops
		m.mu.Unlock()
		return
	}
	p.client = nil
	for id := range p.devices {
		p.devices[id] = false
	}
	m.mu.Unlock()
	m.options.Log.Warn("a device plugin is gone", "resource", name, "err", err)
	m.options.Changed()
	select {
	case <-m.ctx.Done():
		return
	case <-time.After(m.options.GoneAfter):
	}
	m.mu.Lock()
	forgotten := m.resources[name] == p
	if forgotten {
		p.devices = map[string]bool{}
	}
	m.mu.Unlock()
	if forgotten {
		m.options.Changed()
	}
}

// Resources returns how many devices of each plugin the node has, and how many of them are healthy. A plugin that was here once has none.
func (m *Manager) Resources() (capacity, allocatable corev1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = corev1.ResourceList{}, corev1.ResourceList{}
	for name, p := range m.resources {
		healthy := 0
		for _, ok := range p.devices {
			if ok {
				healthy++
			}
		}
		capacity[corev1.ResourceName(name)] = *resource.NewQuantity(int64(len(p.devices)), resource.DecimalSI)
		allocatable[corev1.ResourceName(name)] = *resource.NewQuantity(int64(healthy), resource.DecimalSI)
	}
	return capacity, allocatable
}
