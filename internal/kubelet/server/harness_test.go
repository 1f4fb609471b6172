package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/exec"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
	"skiff/internal/cluster/pki"
	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/server"
)

const patience = 10 * time.Second

// node is a kubelet's server beside an API server that knows its node, in front of a runtime whose containers are functions of this test, which
// are served as containerd serves its containers.
type node struct {
	t         *testing.T
	change    func(*server.Options)
	api       *apitest.Server
	server    *server.Server
	address   string
	authority *pki.Authority
	pool      *x509.CertPool
	logs      string

	mu         sync.Mutex
	pods       map[string]*corev1.Pod
	containers map[string]*runtimeapi.ContainerStatus
	streams    streaming.Server
	sick       error
	attached   chan string // what those who attach have written
}

func start(t *testing.T) *node { return startWith(t, nil, nil) }

// startWith starts a node with options of its API server, or of the kubelet's own.
func startWith(t *testing.T, more apitest.Option, change func(*server.Options)) *node {
	t.Helper()
	t.Cleanup(func() { nothingLeft(t) })
	n := &node{t: t, change: change, pods: map[string]*corev1.Pod{}, containers: map[string]*runtimeapi.ContainerStatus{}, logs: t.TempDir(), attached: make(chan string, 10)}
	var err error
	if n.authority, err = pki.NewAuthority(pki.CA, time.Now(), time.Hour); err != nil {
		t.Fatal(err)
	}
	n.pool = x509.NewCertPool()
	n.pool.AppendCertsFromPEM(n.authority.PEM())
	toKubelets := n.issue(pki.Leaf{Name: pki.APIServerKubeletClient, Authority: pki.CA, User: "kube-apiserver-kubelet-client", Client: true})
	options := []apitest.Option{apitest.WithServer(func(o *apiserver.Options) {
		o.KubeletTLS = func() (*tls.Config, error) {
			return &tls.Config{Certificates: []tls.Certificate{toKubelets}, RootCAs: n.pool}, nil
		}
	})}
	if more != nil {
		options = append(options, more)
	}
	n.api = apitest.Start(t, options...)
	n.startStreams()
	n.startServer(pki.NodeLeaves("n", "127.0.0.1")[1])
	return n
}

func (n *node) issue(leaf pki.Leaf) tls.Certificate {
	n.t.Helper()
	c, err := n.authority.Issue(leaf, time.Now(), time.Hour)
	if err != nil {
		n.t.Fatal(err)
	}
	return c
}

func (n *node) startServer(leaf pki.Leaf) {
	n.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	n.address = l.Addr().String()
	metrics := prometheus.NewRegistry()
	o := server.Options{
		NodeName: "n", API: n.api.InProcess("kubelet", "system:node:n", "system:nodes").Kubernetes(), ClientCAs: func() *x509.CertPool { return n.pool },
		TLS: &tls.Config{Certificates: []tls.Certificate{n.issue(leaf)}}, Pods: n, Runtime: n, Stats: n, Metrics: metrics, LogDir: n.logs,
		Healthy: func(context.Context) error { return n.sick }, Config: func() any { return map[string]int{"maxPods": 110} }, Log: slog.New(slog.DiscardHandler),
	}
	if n.change != nil {
		n.change(&o)
	}
	n.server = server.New(o)
	metrics.MustRegister(n.server)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.server.Serve(ctx, l) }()
	n.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			n.t.Errorf("the kubelet's server: %v", err)
		}
	})
	_, port, _ := net.SplitHostPort(n.address)
	number, _ := strconv.Atoi(port)
	made := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	made, err = n.api.Client().CoreV1().Nodes().Create(n.t.Context(), made, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	made.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	made.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	if _, err := n.api.Client().CoreV1().Nodes().UpdateStatus(n.t.Context(), made, metav1.UpdateOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) startStreams() {
	n.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Fatal(err)
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: l.Addr().String()}
	if n.streams, err = streaming.NewServer(config, processes{n}); err != nil {
		n.t.Fatal(err)
	}
	s := &http.Server{Handler: n.streams}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	n.t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
}

// run binds a pod with one container "c" to the node, and starts it.
func (n *node) run(name string) *corev1.Pod {
	n.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i", Stdin: true}}}}
	pod, err := n.api.Client().CoreV1().Pods("default").Create(n.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods[name] = pod
	n.start(pod, name+"-0")
	return pod
}

// start starts the container of a pod under an id, with an empty log. The lock is held.
func (n *node) start(pod *corev1.Pod, id string) {
	n.t.Helper()
	path := filepath.Join(n.logs, id+".log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		n.t.Fatal(err)
	}
	n.containers[id] = &runtimeapi.ContainerStatus{Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		Labels: cri.ContainerLabels(pod, "c"), CreatedAt: time.Now().UnixNano(), LogPath: path, Image: &runtimeapi.ImageSpec{Image: "i"}}
	pod = pod.DeepCopy()
	s := corev1.ContainerStatus{Name: "c", Image: "i", ContainerID: "containerd://" + id, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	if len(pod.Status.ContainerStatuses) > 0 {
		s.LastTerminationState = pod.Status.ContainerStatuses[0].State
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{s}
	n.pods[pod.Name] = pod
}

// exit ends the container of a pod.
func (n *node) exit(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pod := n.pods[name].DeepCopy()
	s := &pod.Status.ContainerStatuses[0]
	id := strings.TrimPrefix(s.ContainerID, "containerd://")
	s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: s.ContainerID}}
	n.pods[name] = pod
	n.containers[id] = &runtimeapi.ContainerStatus{Id: id, Metadata: n.containers[id].Metadata, State: runtimeapi.ContainerState_CONTAINER_EXITED,
		Labels: n.containers[id].Labels, LogPath: n.containers[id].LogPath}
}

// write has a container write a line.
func (n *node) write(id, line string) {
	n.t.Helper()
	f, err := os.OpenFile(filepath.Join(n.logs, id+".log"), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s stdout F %s\n", time.Now().UTC().Format(time.RFC3339Nano), line); err != nil {
		n.t.Fatal(err)
	}
}

// Pods implements server.Pods.
func (n *node) Pods() (out []*corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		out = append(out, p)
	}
	return out
}

// Pod implements server.Pods.
func (n *node) Pod(namespace, name string) *corev1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.pods[name]; p != nil && p.Namespace == namespace {
		return p
	}
	return nil
}

func (n *node) Exec(_ context.Context, rq *runtimeapi.ExecRequest) (string, error) {
	if len(rq.Cmd) > 0 && rq.Cmd[0] == "redirect" {
		return "http://" + n.redirecting(), nil
	}
	rs, err := n.streams.GetExec(rq)
	return rs.GetUrl(), err
}

func (n *node) Attach(_ context.Context, rq *runtimeapi.AttachRequest) (string, error) {
	rs, err := n.streams.GetAttach(rq)
	return rs.GetUrl(), err
}

func (n *node) PortForward(_ context.Context, rq *runtimeapi.PortForwardRequest) (string, error) {
	rs, err := n.streams.GetPortForward(rq)
	return rs.GetUrl(), err
}

// redirecting returns where somebody listens who sends everybody elsewhere.
func (n *node) redirecting() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.t.Error(err)
		return ""
	}
	s := &http.Server{Handler: http.RedirectHandler("http://elsewhere.example/", http.StatusFound)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	n.t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return l.Addr().String()
}

func (n *node) ExecSync(_ context.Context, _ string, command []string, _ time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	if command[0] == "false" {
		return &runtimeapi.ExecSyncResponse{ExitCode: 1, Stderr: []byte("no")}, nil
	}
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(strings.Join(command, "+"))}, nil
}

func (n *node) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.containers[id]; c != nil {
		return c, nil
	}
	return nil, status.Error(codes.NotFound, "no such container")
}

func (n *node) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) (out []*runtimeapi.Container, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.containers {
		if c.State != f.GetState().GetState() || !has(c.Labels, f.GetLabelSelector()) {
			continue
		}
		out = append(out, &runtimeapi.Container{Id: c.Id, Labels: c.Labels, Metadata: c.Metadata, Image: c.Image, CreatedAt: c.CreatedAt})
	}
	return out, nil
}

func (n *node) ListPodSandboxes(_ context.Context, f *runtimeapi.PodSandboxFilter) (out []*runtimeapi.PodSandbox, err error) {
	for _, p := range n.Pods() {
		if has(cri.PodLabels(p), f.GetLabelSelector()) {
			out = append(out, &runtimeapi.PodSandbox{Id: "sandbox-" + p.Name, Metadata: &runtimeapi.PodSandboxMetadata{Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)}})
		}
	}
	return out, nil
}

func has(labels, want map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// Summary implements server.Stats.
func (n *node) Summary(_ context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	if n.sick != nil {
		return nil, n.sick
	}
	at, cpu, memory := metav1.NewTime(time.Unix(1700000000, 0)), uint64(2500000000), uint64(4096)
	use := func() (*statsapi.CPUStats, *statsapi.MemoryStats) {
		return &statsapi.CPUStats{Time: at, UsageCoreNanoSeconds: &cpu}, &statsapi.MemoryStats{Time: at, WorkingSetBytes: &memory, UsageBytes: &memory}
	}
	s := &statsapi.Summary{Node: statsapi.NodeStats{NodeName: "n"}}
	s.Node.CPU, s.Node.Memory = use()
	c := statsapi.ContainerStats{Name: "c", StartTime: at}
	c.CPU, c.Memory = use()
	p := statsapi.PodStats{PodRef: statsapi.PodReference{Name: "p", Namespace: "default"}, Containers: []statsapi.ContainerStats{c}}
	p.CPU, p.Memory = use()
	if !onlyCPUAndMemory {
		p.Network = &statsapi.NetworkStats{Time: at, InterfaceStats: statsapi.InterfaceStats{Name: "eth0", RxBytes: &memory}}
	}
	s.Pods = []statsapi.PodStats{p}
	return s, nil
}

// processes are what runs in containers.
type processes struct{ n *node }

func (p processes) Exec(ctx context.Context, _ string, cmd []string, in io.Reader, out, stderr io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	switch cmd[0] {
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "lines": // answers each line, so that both directions must work at once
		for lines := bufio.NewScanner(in); lines.Scan(); {
			fmt.Fprintf(out, "got %s tty=%t\n", lines.Text(), tty)
		}
		return nil
	case "sizes":
		for range 2 {
			s := <-resize
			fmt.Fprintf(out, "%dx%d\n", s.Width, s.Height)
		}
		return nil
	case "both":
		fmt.Fprint(out, "to stdout")
		fmt.Fprint(stderr, "to stderr")
		return nil
	case "much":
		_, err := io.CopyN(out, zeroes{}, 10<<20)
		return err
	case "exit":
		code, _ := strconv.Atoi(cmd[1])
		fmt.Fprint(out, "last words")
		return exec.CodeExitError{Err: fmt.Errorf("exit %d", code), Code: code}
	case "broken":
		return errors.New("the process could not be started")
	case "wait": // until the client leaves
		fmt.Fprint(out, "waiting\n")
		_, _ = io.Copy(io.Discard, in)
		p.n.attached <- "left"
		return nil
	case "silent": // and takes no input
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("no such command: %q", cmd)
}

type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func (p processes) Attach(_ context.Context, id string, in io.Reader, out, _ io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize) error {
	fmt.Fprintf(out, "attached to %s tty=%t\n", id, tty)
	got, err := io.ReadAll(in)
	p.n.attached <- string(got)
	return err
}

func (p processes) PortForward(_ context.Context, sandbox string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	if port == 9 {
		return errors.New("connection refused")
	}
	in := bufio.NewReader(stream)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil
		}
		if _, err := fmt.Fprintf(stream, "%s:%d %s", sandbox, port, line); err != nil {
			return err
		}
	}
}

// nothingLeft fails if something of the server's was left running. Clients end in their own time.
func nothingLeft(t *testing.T) {
	stacks := make([]byte, 4<<20)
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		var left []string
		for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			for _, of := range []string{"kubelet/server.(", "apiserver.(", "x/net/websocket.", "cri-streaming/"} {
				if strings.Contains(stack, of) {
					left = append(left, stack)
					break
				}
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%d goroutines are left over:\n%s", len(left), strings.Join(left, "\n\n"))
			return
		}
	}
}

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // the libraries of clients tell what tests do on purpose
	os.Exit(m.Run())
}
