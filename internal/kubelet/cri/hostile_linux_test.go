package cri_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/kubelettest"
)

// TestHostileTerminationMessage ends containers that have mounted something of their own where their termination message should be, as a volume's
// subPath can: nothing of it is read, and observing the pod does not block.
func TestHostileTerminationMessage(t *testing.T) {
	r := kubelettest.NewRuntime()
	r.AddImage(kubelettest.Image{Name: "nginx", Present: true})
	pods := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret of the node"), 0o600); err != nil {
		t.Fatal(err)
	}
	volume := func(pod *corev1.Pod) string {
		return filepath.Join(filepath.Dir(messageFile(t, pods, pod, "a")), "../../volume-subpaths")
	}
	for name, test := range map[string]struct {
		make func(pod *corev1.Pod) (path string, err error)
		want string // the message begins with it
	}{
		"a FIFO of a volume": {func(pod *corev1.Pod) (string, error) {
			return volume(pod), unix.Mkfifo(volume(pod), 0o600)
		}, ""},
		"a file of the node": {func(*corev1.Pod) (string, error) { return secret, nil }, ""},
		"a FIFO instead of the kubelet's file": {func(pod *corev1.Pod) (string, error) {
			file := messageFile(t, pods, pod, "a")
			return file, unix.Mkfifo(file, 0o600)
		}, "Error on reading termination log "},
		"a link instead of the kubelet's file": {func(pod *corev1.Pod) (string, error) {
			file := messageFile(t, pods, pod, "a")
			return file, os.Symlink(secret, file)
		}, "Error on reading termination log "},
	} {
		pod := newPod()
		pod.UID += types.UID(strings.ReplaceAll(name, " ", "-"))
		path, err := test.make(pod)
		if err != nil {
			t.Fatal(err)
		}
		c := &corev1.Container{Name: "a", Image: "nginx", TerminationMessagePath: "/dev/termination-log"}
		_, id := run(t, r, pod, c, "", 0, &runtimeapi.Mount{HostPath: path, ContainerPath: "/dev/termination-log"})
		r.Exit(id, 0)
		message := make(chan string, 1)
		go func() {
			got, err := cri.NewObserver(r, pods).Observe(context.Background(), pod.UID)
			if err != nil {
				message <- err.Error()
				return
			}
			message <- got.Find("a").Message
		}()
		select {
		case got := <-message:
			if !strings.HasPrefix(got, test.want) || test.want == "" && got != "" || strings.Contains(got, "secret of") {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s blocks the kubelet", name)
		}
	}
}
