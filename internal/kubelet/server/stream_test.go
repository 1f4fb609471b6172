package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
)

// ways are the protocols in which clients reach containers.
var ways = map[string]func(*rest.Config, *url.URL) (remotecommand.Executor, error){
	"SPDY": func(c *rest.Config, u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewSPDYExecutor(c, "POST", u)
	},
	"WebSocket": func(c *rest.Config, u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutor(c, "GET", u.String())
	},
	"old WebSocket": func(c *rest.Config, u *url.URL) (remotecommand.Executor, error) {
		return remotecommand.NewWebSocketExecutorForProtocols(c, "GET", u.String(), "v4.channel.k8s.io")
	},
}

func (n *node) execURL(pod string, o corev1.PodExecOptions) *url.URL {
	return n.api.Client().CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod).SubResource("exec").VersionedParams(&o, scheme.ParameterCodec).URL()
}

// exec runs a command through the API server, as kubectl does.
func (n *node) exec(ctx context.Context, way, pod string, in io.Reader, command ...string) (stdout, stderr string, err error) {
	n.t.Helper()
	e, err := ways[way](n.api.Config(), n.execURL(pod, corev1.PodExecOptions{Command: command, Stdin: in != nil, Stdout: true, Stderr: true}))
	if err != nil {
		n.t.Fatal(err)
	}
	var out, errs bytes.Buffer
	err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: &out, Stderr: &errs})
	return out.String(), errs.String(), err
}

func TestExec(t *testing.T) {
	n := start(t)
	n.run("p")
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if out, errs, err := n.exec(ctx, way, "p", nil, "both"); err != nil || out != "to stdout" || errs != "to stderr" {
				t.Errorf("both: %q %q %v", out, errs, err)
			}
			// The end of the input can be told apart from the end of the connection in all protocols but the old one of WebSockets.
			if way != "old WebSocket" {
				text := strings.Repeat("0123456789abcdef", 1<<16)
				if out, _, err := n.exec(ctx, way, "p", strings.NewReader(text), "cat"); err != nil || out != text {
					t.Errorf("cat: %d bytes of %d, %v", len(out), len(text), err)
				}
			}
			if out, _, err := n.exec(ctx, way, "p", nil, "much"); err != nil || len(out) != 10<<20 {
				t.Errorf("much: %d bytes, %v", len(out), err)
			}
			out, _, err := n.exec(ctx, way, "p", nil, "exit", "42")
			var code exec.CodeExitError
			if !errors.As(err, &code) || code.Code != 42 || out != "last words" {
				t.Errorf("exit: %q %v", out, err)
			}
			if _, _, err := n.exec(ctx, way, "p", nil, "broken"); err == nil || !strings.Contains(err.Error(), "the process could not be started") {
				t.Errorf("broken: %v", err)
			}
			// Endless input does not keep a process from ending.
			if out, _, err := n.exec(ctx, way, "p", zeroes{}, "exit", "3"); !errors.As(err, &code) || code.Code != 3 || out != "last words" {
				t.Errorf("exit with input: %q %v", out, err)
			}
		})
	}
}

// A conversation: an answer must come before the next question is asked.
func TestExecBothWays(t *testing.T) {
	n := start(t)
	n.run("p")
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			e, err := ways[way](n.api.Config(), n.execURL("p", corev1.PodExecOptions{Command: []string{"lines"}, Stdin: true, Stdout: true, TTY: true}))
			if err != nil {
				t.Fatal(err)
			}
			inReader, in := io.Pipe()
			out, outWriter := io.Pipe()
			done := make(chan error, 1)
			go func() {
				done <- e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: inReader, Stdout: outWriter, Tty: true, TerminalSizeQueue: unresized()})
				_ = outWriter.Close()
			}()
			for i := range 5 {
				fmt.Fprintf(in, "line %d\n", i)
				want := fmt.Sprintf("got line %d tty=true\n", i)
				got := make([]byte, len(want))
				if _, err := io.ReadFull(out, got); string(got) != want {
					t.Fatalf("got %q %v, want %q", got, err, want)
				}
			}
			_ = in.Close()
			if way == "old WebSocket" {
				cancel() // it cannot say that the input has ended
				<-done
				return
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func unresized() sizes {
	s := make(sizes)
	close(s)
	return s
}

// sizes are those of a terminal that is resized.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

func TestTerminalSize(t *testing.T) {
	n := start(t)
	n.run("p")
	for _, way := range []string{"SPDY", "WebSocket"} {
		t.Run(way, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			// A terminal has one output, whatever the client says.
			e, err := ways[way](n.api.Config(), n.execURL("p", corev1.PodExecOptions{Command: []string{"sizes"}, Stdout: true, TTY: true}))
			if err != nil {
				t.Fatal(err)
			}
			queue := make(sizes, 2)
			queue <- remotecommand.TerminalSize{Width: 80, Height: 24}
			queue <- remotecommand.TerminalSize{Width: 120, Height: 50}
			close(queue)
			var out bytes.Buffer
			if err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Tty: true, TerminalSizeQueue: queue}); err != nil || out.String() != "80x24\n120x50\n" {
				t.Errorf("%q %v", out.String(), err)
			}
		})
	}
}

// A process whose client leaves is let go, even if it says nothing.
func TestClientLeaves(t *testing.T) {
	n := start(t)
	n.run("p")
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			e, err := ways[way](n.api.Config(), n.execURL("p", corev1.PodExecOptions{Command: []string{"wait"}, Stdin: true, Stdout: true}))
			if err != nil {
				t.Fatal(err)
			}
			in, keepOpen := io.Pipe()
			defer keepOpen.Close()
			out := &firstWrite{cancel}
			if err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out}); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
			select {
			case <-n.attached:
			case <-time.After(patience):
				t.Error("the process goes on")
			}
		})
	}
}

// firstWrite is told when something is written.
type firstWrite struct{ told func() }

func (f *firstWrite) Write(b []byte) (int, error) {
	f.told()
	return len(b), nil
}

func TestAttach(t *testing.T) {
	n := start(t)
	n.run("p")
	for _, way := range []string{"SPDY", "WebSocket"} {
		t.Run(way, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			u := n.api.Client().CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name("p").SubResource("attach").
				VersionedParams(&corev1.PodAttachOptions{Stdin: true, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL()
			e, err := ways[way](n.api.Config(), u)
			if err != nil {
				t.Fatal(err)
			}
			var out, errs bytes.Buffer
			if err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errs}); err != nil ||
				out.String() != "attached to p-0 tty=false\n" {
				t.Errorf("%q %v", out.String(), err)
			}
			if got := <-n.attached; got != "hello" {
				t.Errorf("the container read %q", got)
			}
		})
	}
}

func TestStreamRefusals(t *testing.T) {
	n := start(t)
	n.run("p")
	n.run("stopped")
	n.exit("stopped")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for way := range ways {
		if _, _, err := n.exec(ctx, way, "stopped", nil, "cat"); err == nil || way == "SPDY" && !strings.Contains(err.Error(), `container not found ("c")`) {
			t.Errorf("%s: a container that has ended: %v", way, err)
		}
		if _, _, err := n.exec(ctx, way, "p", nil, "redirect"); err == nil || strings.Contains(err.Error(), "elsewhere") {
			t.Errorf("%s: a runtime that redirects: %v", way, err)
		}
	}
}

// dialers returns the ways of kubectl port-forward.
func (n *node) dialers(pod string) map[string]httpstream.Dialer {
	u := n.api.Client().CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(n.api.Config())
	if err != nil {
		n.t.Fatal(err)
	}
	tunnel, err := portforward.NewSPDYOverWebsocketDialer(u, n.api.Config())
	if err != nil {
		n.t.Fatal(err)
	}
	return map[string]httpstream.Dialer{"SPDY": spdy.NewDialer(upgrader, &http.Client{Transport: transport}, "POST", u), "WebSocket": tunnel}
}

func TestPortForward(t *testing.T) {
	n := start(t)
	n.run("p")
	for way, dialer := range n.dialers("p") {
		t.Run(way, func(t *testing.T) {
			stop, ready := make(chan struct{}), make(chan struct{})
			var errs bytes.Buffer
			f, err := portforward.NewOnAddresses(dialer, []string{"127.0.0.1"}, []string{"0:80", "0:9"}, stop, ready, io.Discard, &errs)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- f.ForwardPorts() }()
			select {
			case <-ready:
			case err := <-done:
				t.Fatalf("it ended: %v", err)
			case <-time.After(patience):
				t.Fatal("it is not ready")
			}
			ports, err := f.GetPorts()
			if err != nil {
				t.Fatal(err)
			}
			// Several connections at once, in turns.
			var conns []net.Conn
			for range 3 {
				c, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", ports[0].Local))
				if err != nil {
					t.Fatal(err)
				}
				_ = c.SetDeadline(time.Now().Add(patience))
				conns = append(conns, c)
			}
			for i := range 6 {
				c := conns[i%3]
				fmt.Fprintf(c, "line %d\n", i)
				want := fmt.Sprintf("sandbox-p:80 line %d\n", i)
				got := make([]byte, len(want))
				if _, err := io.ReadFull(c, got); string(got) != want {
					t.Errorf("got %q %v, want %q", got, err, want)
				}
			}
			for _, c := range conns {
				_ = c.Close()
			}
			refused, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", ports[1].Local))
			if err != nil {
				t.Fatal(err)
			}
			_ = refused.SetDeadline(time.Now().Add(patience))
			if got, err := io.ReadAll(refused); len(got) > 0 || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a port where nobody listens: %q %v", got, err)
			}
			_ = refused.Close()
			close(stop)
			select {
			case <-done:
			case <-time.After(patience):
				t.Error("it goes on")
			}
		})
	}
}

// Streams end with the server.
func TestServerStops(t *testing.T) {
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			n := start(t)
			n.run("p")
			ended := make(chan error, 1)
			said := make(chan struct{}, 1)
			e, err := ways[way](n.api.Config(), n.execURL("p", corev1.PodExecOptions{Command: []string{"wait"}, Stdin: true, Stdout: true}))
			if err != nil {
				t.Fatal(err)
			}
			in, keepOpen := io.Pipe()
			go func() {
				ended <- e.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdin: in, Stdout: &firstWrite{func() { said <- struct{}{} }}})
			}()
			<-said
			n.server.Close()
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("the client still waits")
			}
			_ = keepOpen.Close()
			<-n.attached
		})
	}
}
