package bundle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/images"
)

const (
	// readyTime bounds how long a containerd that was started may take to serve, and adoptTime how long one that was found running may.
	readyTime, adoptTime = 30 * time.Second, 5 * time.Second
	// The back-off between restarts doubles from the first to the second; a containerd that ran for longer than the third resets it.
	firstDelay, longestDelay, wellAfter = 100 * time.Millisecond, 10 * time.Second, 10 * time.Second
	// logBytes is the size at which containerd's log is rotated; one rotated file is kept.
	logBytes = 8 << 20
	// lookEvery is how often logs, shims and sockets are cleaned up.
	lookEvery = 10 * time.Second
)

// Runtime is a container runtime that is kept running.
type Runtime struct {
	o      Options
	paths  Paths
	pause  string
	config string // path of the configuration file
	cancel context.CancelFunc
	owned  sync.WaitGroup // goroutines of this Runtime
}

// Start unpacks what skiff carries, if that was not done before, and starts containerd or adopts the one that runs. When it returns, CRI is
// served at Endpoint. The context bounds the start only; Stop or Detach ends the supervision.
func Start(ctx context.Context, o Options) (*Runtime, error) {
	paths, err := o.complete()
	if err != nil {
		return nil, err
	}
	at, contents, err := Unpack(ctx, o.Program, bundles(o.DataDir))
	if err != nil {
		return nil, err
	}
	paths.Bundle = at
	paths.CNIBin = append([]string{filepath.Join(at, "cni")}, o.CNIBin...)
	r := &Runtime{o: o, paths: paths, pause: contents.Pause}
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	left := r.findLeftovers()
	p, busy, err := r.begin(ctx)
	if err != nil {
		left.close()
		return nil, err
	}
	own, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.owned.Go(func() { r.removeLeftovers(own, left, busy) })
	r.owned.Go(func() { r.supervise(own, p) })
	r.owned.Go(func() { r.cleanUpPeriodically(own) })
	r.owned.Go(func() { r.pullPause(own) })
	sweep(bundles(o.DataDir), at, o.Log)
	return r, nil
}

// Endpoint returns the URL of the CRI socket.
func (r *Runtime) Endpoint() string { return "unix://" + r.paths.Socket }

// Paths returns the paths of the runtime.
func (r *Runtime) Paths() Paths { return r.paths }

// Detach leaves containerd and all containers running, for the next Start to adopt.
func (r *Runtime) Detach() {
	r.cancel()
	r.owned.Wait()
}

// Stop ends containerd and all containers, and removes everything of them on this machine but data.
func (r *Runtime) Stop(ctx context.Context) error {
	r.Detach()
	return Clean(ctx, r.o.DataDir)
}

// prepare makes the directories and files that containerd needs when it starts.
func (r *Runtime) prepare(ctx context.Context) error {
	for _, dir := range []string{r.paths.Root, r.paths.Run, r.paths.Registries} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(r.paths.CNIConf, 0o755); err != nil {
		return err
	}
	if err := writeHosts(r.paths, r.o.Registry); err != nil {
		return err
	}
	profile, err := pauseProfile()
	if err != nil {
		return err
	}
	if err := replaceFile(r.paths.Seccomp, profile); err != nil {
		return err
	}
	n, err := images.ParseName(r.pause)
	if err != nil {
		return err
	}
	if !r.o.Images.Whole(n) {
		f, err := os.Open(filepath.Join(r.paths.Bundle, "images", "pause.tar"))
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := r.o.Images.Load(ctx, f, ""); err != nil {
			return err
		}
	}
	s := containerdConfig{Paths: r.paths, Pause: r.pause, Debug: r.o.Debug, SystemdCgroup: systemdCgroups(), RestrictOOM: !mayLowerOOM()}
	r.config, err = s.write()
	return err
}

// systemdCgroups reports whether systemd owns the cgroups of this machine: then runc asks it for those of containers.
func systemdCgroups() bool {
	_, booted := os.Stat("/run/systemd/system")
	_, unified := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return booted == nil && unified == nil
}

// mayLowerOOM reports whether this process has CAP_SYS_RESOURCE, without which nobody's OOM score can be lowered.
func mayLowerOOM() bool {
	const sysResource = 24
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && caps&(1<<sysResource) != 0
		}
	}
	return false
}

// begin returns a containerd that serves: the one that runs, or a new one. busy is how long an adopted one may still handle calls of an earlier skiff.
func (r *Runtime) begin(ctx context.Context) (p *process, busy time.Duration, err error) {
	if p, err = r.adopt(ctx); err != nil {
		return nil, 0, err
	}
	if p != nil {
		err := r.awaitReady(ctx, p, adoptTime)
		if err == nil {
			return p, settleTime, nil
		}
		r.o.Log.Warn("failed to adopt the running containerd; replacing it", "error", err)
		if err := p.end(ctx, syscall.SIGKILL); err != nil {
			return nil, 0, err
		}
	}
	if p, err = r.launch(); err != nil {
		return nil, 0, err
	}
	if err := r.awaitReady(ctx, p, readyTime); err != nil {
		return nil, 0, errors.Join(err, p.end(context.WithoutCancel(ctx), politely...))
	}
	return p, 0, nil
}

// adopt returns the containerd that an earlier skiff started, or nil. One of another version or configuration is ended; containers keep running.
func (r *Runtime) adopt(ctx context.Context) (*process, error) {
	found, err := containerds(r.o.DataDir)
	if err != nil {
		return nil, err
	}
	var keep *process
	for _, p := range found {
		if keep == nil && p.runs(r.binary("containerd"), r.config) {
			keep = p
			continue
		}
		if err := p.end(ctx, politely...); err != nil {
			return nil, err
		}
	}
	return keep, r.removeOldConfigs()
}

func (r *Runtime) binary(name string) string { return filepath.Join(r.paths.Bundle, "bin", name) }

// removeOldConfigs removes the configuration files that are not used.
func (r *Runtime) removeOldConfigs() error {
	old, err := filepath.Glob(filepath.Join(r.paths.Run, "containerd-*.toml"))
	for _, path := range old {
		if path != r.config {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// awaitReady waits until containerd serves, and fails if it ends or the limit has passed.
func (r *Runtime) awaitReady(ctx context.Context, p *process, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		p.wait(ctx)
		close(ended)
	}()
	defer func() { cancel(); <-ended }()
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := r.callCRI(ctx, func(c cri.RuntimeServiceClient, _ cri.ImageServiceClient) error {
			_, err := c.Version(ctx, &cri.VersionRequest{})
			return err
		})
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			if ctx.Err() == nil {
				return fmt.Errorf("containerd ended before it was ready: %s; see %s", lastLine(r.paths.Log), r.paths.Log)
			}
			return fmt.Errorf("containerd did not serve in time (%w); see %s", err, r.paths.Log)
		case <-time.After(wait):
		}
	}
}

// callCRI calls do with clients of CRI.
func (r *Runtime) callCRI(ctx context.Context, do func(cri.RuntimeServiceClient, cri.ImageServiceClient) error) error {
	return r.dial(func(conn *grpc.ClientConn) error {
		return do(cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn))
	})
}

func (r *Runtime) dial(do func(*grpc.ClientConn) error) error {
	if _, err := os.Stat(r.paths.Socket); err != nil {
		return err
	}
	conn, err := grpc.NewClient(r.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(conn)
}

// supervise restarts containerd whenever it ends, with a back-off.
func (r *Runtime) supervise(ctx context.Context, p *process) {
	delay, began := firstDelay, time.Now()
	for {
		if p != nil {
			p.wait(ctx)
		}
		if ctx.Err() != nil {
			if p != nil {
				p.close()
			}
			return
		}
		if p != nil {
			p.close()
			r.o.Log.Error("containerd has ended and is started again; containers go on", "last", lastLine(r.paths.Log), "log", r.paths.Log)
		}
		if time.Since(began) > wellAfter {
			delay = firstDelay
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		delay, began = min(2*delay, longestDelay), time.Now()
		left := r.findLeftovers()
		var err error
		if p, err = r.launch(); err != nil {
			r.o.Log.Error("containerd could not be started", "error", err)
			p = nil
			left.close()
			continue
		}
		r.owned.Go(func() { r.removeLeftovers(ctx, left, 0) })
	}
}

// cleanUpPeriodically rotates containerd's log, which containerd appends to whatever its length, and removes unused shims and sockets.
func (r *Runtime) cleanUpPeriodically(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if err := rotateLog(r.paths.Log, logBytes); err != nil {
			r.o.Log.Warn("failed to rotate containerd's log", "error", err)
		}
		if err := r.removeSockets(time.Now().Add(-lookEvery)); err != nil {
			r.o.Log.Warn("failed to remove sockets of killed shims", "error", err)
		}
		if err := r.endOrphanedShims(ctx); err != nil && ctx.Err() == nil {
			r.o.Log.Warn("failed to end unused shims", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func rotateLog(path string, limit int64) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil || info.Size() <= limit {
		return err
	}
	data, err := tail(path, limit)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".1", data, 0o600); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}

// pullPause has containerd pull the pause image before the first pod needs it.
func (r *Runtime) pullPause(ctx context.Context) {
	spec := &cri.ImageSpec{Image: r.pause}
	for delay := 100 * time.Millisecond; ; delay = min(2*delay, longestDelay) {
		err := r.callCRI(ctx, func(_ cri.RuntimeServiceClient, c cri.ImageServiceClient) error {
			if s, err := c.ImageStatus(ctx, &cri.ImageStatusRequest{Image: spec}); err == nil && s.Image != nil {
				return nil
			}
			_, err := c.PullImage(ctx, &cri.PullImageRequest{Image: spec})
			return err
		})
		if err == nil || ctx.Err() != nil {
			return
		}
		r.o.Log.Warn("failed to pull the pause image from skiff's registry", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}
