package server_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"skiff/internal/cluster/pki"
)

func (n *node) log(ctx context.Context, pod string, o corev1.PodLogOptions) (string, error) {
	r := n.api.Client().CoreV1().Pods("default").GetLogs(pod, &o).Do(ctx)
	if err := r.Error(); err != nil {
		return "", err
	}
	data, err := r.Raw()
	return string(data), err
}

func TestLogs(t *testing.T) {
	n := start(t)
	pod := n.run("p")
	n.write("p-0", "first life")
	if got, err := n.log(t.Context(), "p", corev1.PodLogOptions{}); got != "first life\n" {
		t.Errorf("%q %v", got, err)
	}
	if _, err := n.log(t.Context(), "p", corev1.PodLogOptions{Previous: true}); err == nil || err.Error() != `previous terminated container "c" in pod "p" not found` {
		t.Errorf("before it was restarted: %v", err)
	}
	n.exit("p")
	if got, err := n.log(t.Context(), "p", corev1.PodLogOptions{Follow: true}); got != "first life\n" {
		t.Errorf("of one that has ended: %q %v", got, err)
	}
	n.mu.Lock()
	n.start(n.pods["p"], "p-1")
	n.mu.Unlock()
	n.write("p-1", "second life")
	for previous, want := range map[bool]string{false: "second life\n", true: "first life\n"} {
		if got, err := n.log(t.Context(), "p", corev1.PodLogOptions{Previous: previous, TailLines: ptr.To[int64](1)}); got != want {
			t.Errorf("previous=%t: %q %v", previous, got, err)
		}
	}
	n.mu.Lock()
	delete(n.containers, "p-0")
	waiting := pod.DeepCopy()
	waiting.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
	n.mu.Unlock()
	if _, err := n.log(t.Context(), "p", corev1.PodLogOptions{Previous: true}); err == nil || err.Error() != "unable to retrieve container logs for containerd://p-0" {
		t.Errorf("of one that was removed: %v", err)
	}
	n.mu.Lock()
	n.pods["p"] = waiting
	n.mu.Unlock()
	if _, err := n.log(t.Context(), "p", corev1.PodLogOptions{}); err == nil || err.Error() != `container "c" in pod "p" is waiting to start: trying and failing to pull image` {
		t.Errorf("of one that waits: %v", err)
	}
	n.mu.Lock()
	delete(n.pods, "p")
	n.mu.Unlock()
	if _, err := n.log(t.Context(), "p", corev1.PodLogOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("of a pod that is not here: %v", err)
	}
}

// kubectl logs -f: lines come when they are written, the log is rotated meanwhile, and it ends with the container.
func TestLogsFollow(t *testing.T) {
	n := start(t)
	n.run("p")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := n.api.Client().CoreV1().Pods("default").GetLogs("p", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	lines := bufio.NewReader(stream)
	expect := func(want string) {
		t.Helper()
		began := time.Now()
		if got, err := lines.ReadString('\n'); got != want+"\n" {
			t.Fatalf("got %q %v, want %q", got, err, want)
		}
		if took := time.Since(began); took > patience/2 {
			t.Errorf("%q came after %v", want, took)
		}
	}
	n.write("p-0", "one")
	expect("one")
	n.write("p-0", "two")
	expect("two")
	path := filepath.Join(n.logs, "p-0.log")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	n.write("p-0", "three")
	expect("three")
	n.write("p-0", "four")
	n.exit("p")
	expect("four")
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("after its end: %q %v", rest, err)
	}
}

// A client that leaves is noticed, and so is the end of the server.
func TestFollowersEnd(t *testing.T) {
	n := start(t)
	n.run("p")
	n.write("p-0", "one")
	ctx, cancel := context.WithCancel(t.Context())
	var streams []io.ReadCloser
	for _, ctx := range []context.Context{ctx, t.Context()} {
		stream, err := n.api.Client().CoreV1().Pods("default").GetLogs("p", &corev1.PodLogOptions{Follow: true}).Stream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		if _, err := bufio.NewReader(stream).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		streams = append(streams, stream)
	}
	cancel()
	n.server.Close() // which waits for both
	_, _ = io.ReadAll(streams[1])
}

// The API server talks only to kubelets that have a certificate of the cluster, for the address they are at, unless it is told not to care.
func TestAPIServerVerifiesKubelets(t *testing.T) {
	n := start(t)
	n.run("p")
	n.write("p-0", "one")
	if _, err := n.log(t.Context(), "p", corev1.PodLogOptions{}); err != nil {
		t.Fatal(err)
	}
	nodes := n.api.Client().CoreV1().Nodes()
	if err := nodes.Delete(t.Context(), "n", *newDelete()); err != nil {
		t.Fatal(err)
	}
	n.startServer(pki.Leaf{Name: pki.Kubelet, Authority: pki.CA, User: "system:node:n", Groups: []string{"system:nodes"}, Hosts: []string{"elsewhere"}})
	if _, err := n.log(t.Context(), "p", corev1.PodLogOptions{}); err == nil || !strings.Contains(err.Error(), "x509: cannot validate certificate for 127.0.0.1") {
		t.Errorf("a kubelet with a certificate for elsewhere: %v", err)
	}
	if _, _, err := n.exec(t.Context(), "SPDY", "p", nil, "both"); err == nil || !strings.Contains(err.Error(), "x509: cannot validate certificate for 127.0.0.1") {
		t.Errorf("exec: %v", err)
	}
	if got, err := n.log(t.Context(), "p", corev1.PodLogOptions{InsecureSkipTLSVerifyBackend: true}); got != "one\n" {
		t.Errorf("without care: %q %v", got, err)
	}
}
