//go:build linux

package plugins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// plugin is a plugin that registers by a socket.
type plugin struct {
	registration.UnsafeRegistrationServer
	info *registration.PluginInfo

	mu   sync.Mutex
	told []string
}

func (p *plugin) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return p.info, nil
}

func (p *plugin) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, fmt.Sprintf("%v %s", s.PluginRegistered, s.Error))
	return &registration.RegistrationStatusResponse{}, nil
}

// listen serves the plugin on a socket until it is closed, which removes the socket.
func (p *plugin) listen(t *testing.T, path string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	registration.RegisterRegistrationServer(s, p)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return s.Stop
}

// handler notes what it is called with.
type handler struct {
	mu    sync.Mutex
	calls []string
	fail  int // how many calls of Register are to fail
}

func (h *handler) Validate(name, _ string, versions []string) error {
	if len(versions) == 0 {
		return errors.New("no version of " + name)
	}
	return nil
}

func (h *handler) Register(_ context.Context, name, _ string, _ []string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail > 0 {
		h.fail--
		return errors.New("not now")
	}
	h.calls = append(h.calls, "+"+name)
	return nil
}

func (h *handler) Deregister(_ context.Context, name, _ string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, "-"+name)
}

func (h *handler) called() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.calls, " ")
}

func eventually(t *testing.T, got func() string, want string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); got() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %q, want %q", got(), want)
		}
	}
}

// Plugins are registered when their socket appears, in the directory or below it, and deregistered when it goes. One that takes the place of another is
// registered anew, and one that could not be registered is tried again.
func TestRegister(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "registry")
	h := &handler{fail: 1}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	run := func(ctx context.Context) {
		done <- Run(ctx, Options{Dir: dir, Handlers: map[string]Handler{registration.CSIPlugin: h}, Log: slog.New(slog.DiscardHandler)})
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	first := &plugin{info: &registration.PluginInfo{Type: registration.CSIPlugin, Name: "first", SupportedVersions: []string{"1.0.0"}}}
	stop := first.listen(t, filepath.Join(dir, "first.sock"))
	go run(ctx)
	eventually(t, h.called, "+first")
	eventually(t, func() string { first.mu.Lock(); defer first.mu.Unlock(); return strings.Join(first.told, "; ") },
		"false RegisterPlugin error -- plugin registration failed with err: not now; true ")
	stop()
	eventually(t, h.called, "+first -first")
	stop = first.listen(t, filepath.Join(dir, "first.sock"))
	eventually(t, h.called, "+first -first +first")

	if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	second := &plugin{info: &registration.PluginInfo{Type: registration.CSIPlugin, Name: "second", SupportedVersions: []string{"1.0.0"}}}
	second.listen(t, filepath.Join(dir, "below", "second.sock"))
	eventually(t, h.called, "+first -first +first +second")

	other := &plugin{info: &registration.PluginInfo{Type: "Other", Name: "other"}}
	other.listen(t, filepath.Join(dir, "other.sock"))
	eventually(t, func() string {
		other.mu.Lock()
		defer other.mu.Unlock()
		return strings.Join(other.told[:min(1, len(other.told))], "; ")
	},
		"false RegisterPlugin error -- no handler registered for plugin type: Other at socket "+filepath.Join(dir, "other.sock"))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := h.called(); got != "+first -first +first +second" {
		t.Errorf("after the end: %s", got)
	}
	stop()
}
