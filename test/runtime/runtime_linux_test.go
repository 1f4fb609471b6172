package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/bundle"
	"skiff/internal/images"
	"skiff/internal/images/access"
	"skiff/internal/network/podnet"
	"skiff/test/alone"
	"skiff/test/traces"
)

// TestMain is also what unpacks the bundle, if the tests are built with one (go test -tags bundle), without bin/skiff.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == bundle.UnpackCommand {
		path, err := bundle.Extract(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(path)
		return
	}
	alone.Main(m)
}

// archive returns an image that make images built.
func archive(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "build", "images", name+".tar")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v\nmake images builds it", err)
	}
	return path
}

// node is a data directory with images, a registry and a container runtime.
type node struct {
	t       *testing.T
	data    string
	real    string // what data is a link to
	store   *images.Store
	server  *access.Registry
	options bundle.Options
	runtime *bundle.Runtime
	network podnet.Config
	cri.RuntimeServiceClient
	cri.ImageServiceClient
}

// newNode returns a node and starts it. podCIDR must be no other test's.
func newNode(t *testing.T, podCIDR string, archives ...string) *node {
	t.Helper()
	skiff := ""
	if !bundle.Carried() {
		if skiff = os.Getenv("SKIFF"); skiff == "" {
			skiff = filepath.Join("..", "..", "bin", "skiff")
		}
		if _, err := os.Stat(skiff); err != nil {
			t.Fatalf("%v\nmake builds it, with what make bundle builds", err)
		}
	}
	// The data directory is on another disk, so to speak.
	dir := t.TempDir()
	n := &node{t: t, data: filepath.Join(dir, "data"), real: filepath.Join(dir, "disk")}
	if err := errors.Join(os.Mkdir(n.real, 0o700), os.Symlink(n.real, n.data)); err != nil {
		t.Fatal(err)
	}
	before := traces.Of(t)
	t.Cleanup(func() {
		groups := []string{n.cgroup()}
		if n.runtime != nil {
			groups = append(groups, filepath.Dir(n.runtime.Paths().Cgroup))
		}
		traces.NothingLeft(t, "the test", before, groups...)
	})
	var err error
	if n.store, err = images.Open(filepath.Join(n.data, "images")); err != nil {
		t.Fatal(err)
	}
	for _, a := range archives {
		f, err := os.Open(archive(t, a))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.store.Load(t.Context(), f, ""); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	if n.server, err = access.Serve(access.Options{Dir: filepath.Join(n.data, "registry"), Address: "127.0.0.1:0", Store: n.store, Log: n.log()}); err != nil {
		t.Fatal(err)
	}
	n.options = bundle.Options{DataDir: n.data, Images: n.store, Registry: n.server.Access(), Program: skiff, Log: n.log()}
	t.Cleanup(n.clean)
	n.start()
	n.network = podnet.Config{Dir: n.runtime.Paths().CNIConf, State: filepath.Join(n.data, "cni", "state"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix(podCIDR)}}
	conn, err := grpc.NewClient(n.runtime.Endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(bounded))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	n.RuntimeServiceClient, n.ImageServiceClient = cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)
	return n
}

// bounded limits every call to a minute: a runtime that hangs is a failure to report, not to wait for.
func bounded(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := invoke(ctx, method, request, reply, conn, options...); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// start starts the runtime, or adopts the one that runs.
func (n *node) start() {
	n.t.Helper()
	var err error
	if n.runtime, err = bundle.Start(n.t.Context(), n.options); err != nil {
		if errors.Is(err, bundle.ErrNone) || strings.Contains(err.Error(), bundle.ErrNone.Error()) {
			n.t.Fatalf("%v\n%s carries no bundle: make", err, n.options.Program)
		}
		n.t.Fatal(err)
	}
}

// log returns a logger to the log of the test.
func (n *node) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(testWriter{n.t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// cgroup returns where the node's containers are, another in each run. The kubelet makes and removes those of real pods.
func (n *node) cgroup() string { return fmt.Sprintf("/skiff-test-%s-%d", n.t.Name(), os.Getpid()) }

func (n *node) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if n.runtime != nil {
		if n.t.Failed() {
			if log, err := os.ReadFile(n.runtime.Paths().Log); err == nil {
				n.t.Logf("containerd's log ends:\n%s", log[max(0, len(log)-4000):])
			}
			if out, err := exec.CommandContext(ctx, "ps", "-e", "-o", "pid,ppid,etimes,stat,wchan:32,args").Output(); err == nil {
				n.t.Logf("what runs:\n%s", out)
			}
		}
		if err := n.runtime.Stop(ctx); err != nil {
			n.t.Error(err)
		}
		if err := n.network.Clean(); err != nil {
			n.t.Error(err)
		}
	}
	if dirs, err := filepath.Glob("/sys/fs/cgroup" + n.cgroup()); err == nil {
		more, _ := filepath.Glob("/sys/fs/cgroup/*" + n.cgroup())
		for _, dir := range append(dirs, more...) {
			if err := os.Remove(dir); err != nil {
				n.t.Error(err)
			}
		}
	}
	if err := n.server.Close(ctx); err != nil {
		n.t.Error(err)
	}
}

// configure writes the network's configuration and waits until the runtime has seen it.
func (n *node) configure(write func() error) {
	n.t.Helper()
	if err := write(); err != nil {
		n.t.Fatal(err)
	}
	n.await("the network to be ready", func() bool {
		s, err := n.RuntimeServiceClient.Status(n.t.Context(), &cri.StatusRequest{})
		if err != nil {
			return false
		}
		for _, c := range s.Status.Conditions {
			if c.Type == cri.NetworkReady && c.Status {
				return true
			}
		}
		return false
	})
}

func (n *node) await(what string, ok func() bool) {
	n.t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	n.t.Fatalf("waited 10 s for %s", what)
}

func (n *node) pull(image string, auth *cri.AuthConfig) error {
	_, err := n.PullImage(n.t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}, Auth: auth})
	return err
}

// pod is a sandbox and one container in it.
type pod struct {
	sandbox   *cri.PodSandboxConfig
	id        string
	container string
	ip        string
}

func (n *node) run(name, image string, command ...string) *pod {
	n.t.Helper()
	p := &pod{sandbox: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Hostname: name, LogDirectory: filepath.Join(n.data, "logs", name),
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: n.cgroup(), SecurityContext: &cri.LinuxSandboxSecurityContext{
			Seccomp: &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault},
		}},
	}}
	s, err := n.RunPodSandbox(n.t.Context(), &cri.RunPodSandboxRequest{Config: p.sandbox})
	if err != nil {
		n.t.Fatal(err)
	}
	p.id = s.PodSandboxId
	c, err := n.CreateContainer(n.t.Context(), &cri.CreateContainerRequest{PodSandboxId: p.id, SandboxConfig: p.sandbox, Config: &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "main"}, Image: &cri.ImageSpec{Image: image}, Command: command, LogPath: "main.log",
	}})
	if err != nil {
		n.t.Fatal(err)
	}
	p.container = c.ContainerId
	if _, err := n.StartContainer(n.t.Context(), &cri.StartContainerRequest{ContainerId: p.container}); err != nil {
		n.t.Fatal(err)
	}
	status, err := n.PodSandboxStatus(n.t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil {
		n.t.Fatal(err)
	}
	p.ip = status.Status.Network.GetIp()
	return p
}

func (n *node) exec(p *pod, command ...string) string {
	n.t.Helper()
	out, err := n.ExecSync(n.t.Context(), &cri.ExecSyncRequest{ContainerId: p.container, Cmd: command, Timeout: 10})
	if err != nil {
		n.t.Fatal(err)
	}
	if out.ExitCode != 0 {
		n.t.Fatalf("%v ended with %d: %s%s", command, out.ExitCode, out.Stdout, out.Stderr)
	}
	return strings.TrimSpace(string(out.Stdout))
}

func (n *node) state(p *pod) cri.ContainerState {
	n.t.Helper()
	s, err := n.ContainerStatus(n.t.Context(), &cri.ContainerStatusRequest{ContainerId: p.container})
	if err != nil {
		n.t.Fatal(err)
	}
	return s.Status.State
}

func (n *node) remove(p *pod) {
	n.t.Helper()
	if _, err := n.StopPodSandbox(n.t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		n.t.Error(err)
	}
	if _, err := n.RemovePodSandbox(n.t.Context(), &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		n.t.Error(err)
	}
}

// A pod is run as the kubelet does it: its image comes from skiff's registry under its usual name, its address from our configuration.
func TestPod(t *testing.T) {
	n := newNode(t, "10.199.1.0/24", "busybox", "nginx")
	n.configure(n.network.Write)
	for _, image := range []string{"busybox", "docker.io/library/nginx:latest"} {
		if err := n.pull(image, nil); err != nil {
			t.Fatal(err)
		}
	}
	web := n.run("web", "nginx")
	box := n.run("box", "busybox", "sleep", "1000")
	if !strings.HasPrefix(web.ip, "10.199.1.") || web.ip == box.ip {
		t.Errorf("addresses are %q and %q", web.ip, box.ip)
	}
	if got := n.exec(box, "hostname"); got != "box" {
		t.Errorf("hostname is %q", got)
	}
	n.await("nginx to answer the node", func() bool { return strings.Contains(get("http://"+web.ip), "Welcome to nginx") })
	if got := n.exec(box, "wget", "-q", "-O", "-", "http://"+web.ip); !strings.Contains(got, "Welcome to nginx") {
		t.Errorf("nginx answers its neighbour %q", got)
	}
	if got := n.exec(web, "sh", "-c", "id -u; ls /usr/share/nginx/html"); got != "0\nindex.html" {
		t.Errorf("in nginx: %q", got)
	}
	log, err := os.ReadFile(filepath.Join(web.sandbox.LogDirectory, "main.log"))
	if err != nil || !strings.Contains(string(log), "GET / HTTP/1.1") {
		t.Errorf("nginx's log: %v\n%s", err, log)
	}
	// Seccomp's default profile is in force in the sandbox.
	if got := n.exec(box, "grep", "Seccomp:", "/proc/self/status"); got != "Seccomp:\t0" {
		t.Errorf("a container without a profile has %q", got)
	}
	list, err := n.ListImages(t.Context(), &cri.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	pinned := 0
	for _, i := range list.Images {
		if i.Pinned {
			pinned++
		}
	}
	if len(list.Images) != 3 || pinned != 1 {
		t.Errorf("images: %v", list.Images)
	}
	n.remove(web)
	n.remove(box)
}

func get(url string) string {
	client := http.Client{Timeout: time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return string(body)
}
