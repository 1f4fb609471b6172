package cri

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// server answers a few calls, as a runtime does.
type server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	stopped chan *runtimeapi.StopContainerRequest
}

func (s *server) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "test"}, nil
}

func (s *server) ContainerStatus(_ context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return nil, status.Errorf(codes.NotFound, "no container %s", r.ContainerId)
}

func (s *server) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	s.stopped <- r
	<-ctx.Done() // it takes for ever
	return nil, ctx.Err()
}

func (s *server) ImageStatus(context.Context, *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{}, nil
}

func (s *server) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	for range 3 {
		if err := stream.Send(&runtimeapi.ContainerEventResponse{ContainerId: "c"}); err != nil {
			return err
		}
	}
	return nil
}

func serve(t *testing.T, socket string) (*server, *grpc.Server) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s, g := &server{stopped: make(chan *runtimeapi.StopContainerRequest, 1)}, grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(g, s)
	runtimeapi.RegisterImageServiceServer(g, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Serve(l)
	}()
	t.Cleanup(func() { g.Stop(); <-done })
	return s, g
}

func TestClient(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	c, err := Connect("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Version(t.Context()); !IsUnavailable(err) {
		t.Errorf("with nobody there: %v", err)
	}
	s, g := serve(t, socket)
	eventually(t, func() error { _, err := c.Version(t.Context()); return err })
	if _, err := c.ContainerStatus(t.Context(), "c"); !IsNotFound(err) || Message(err) != "no container c" {
		t.Errorf("a container that is not there: %v", err)
	}
	if i, err := c.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: "x"}); err != nil || i != nil {
		t.Errorf("an image that is not there: %v, %v", i, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-s.stopped; cancel() }()
	if err := c.StopContainer(ctx, "c", 1500*time.Millisecond); status.Code(err) != codes.Canceled {
		t.Errorf("a stop that was broken off: %v", err)
	}
	connected, events := 0, 0
	if err := c.Events(t.Context(), func() { connected++ }, func(*runtimeapi.ContainerEventResponse) { events++ }); err == nil || connected != 1 || events != 3 {
		t.Errorf("events: %v, connected %d, events %d", err, connected, events)
	}
	g.Stop()
	if _, err := c.Version(t.Context()); !IsUnavailable(err) {
		t.Errorf("after the runtime ended: %v", err)
	}
	serve(t, socket)
	eventually(t, func() error { _, err := c.Version(t.Context()); return err })
}

func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A grace period is given in full seconds, never less than was meant.
func TestGraceInSeconds(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s, _ := serve(t, socket)
	c, err := Connect(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go c.StopContainer(ctx, "c", 1500*time.Millisecond)
	if r := <-s.stopped; r.Timeout != 2 {
		t.Errorf("%d s", r.Timeout)
	}
}

func TestConnectRefuses(t *testing.T) {
	for _, bad := range []string{"", "tcp://127.0.0.1:1", "npipe:////x", "relative.sock"} {
		if _, err := Connect(bad); err == nil || !strings.Contains(err.Error(), "want a unix socket") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
