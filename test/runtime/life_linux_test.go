package runtime

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/bundle"
)

// programs returns the processes of a node that run a program of the bundle.
func (n *node) programs(name string) (pids []int) {
	n.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		exe, _ := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if pid, err := strconv.Atoi(e.Name()); err == nil && strings.HasPrefix(exe, n.real+"/") && filepath.Base(exe) == name {
			pids = append(pids, pid)
		}
	}
	return pids
}

// one returns the only process that runs a program.
func (n *node) one(name string) int {
	n.t.Helper()
	pids := n.programs(name)
	if len(pids) != 1 {
		n.t.Fatalf("%s runs as %v, want one", name, pids)
	}
	return pids[0]
}

func kill(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

// Containers outlive skiff and containerd; each finds what the other left.
func TestContainersOutlive(t *testing.T) {
	n := newNode(t, "10.199.2.0/24", "busybox")
	n.configure(n.network.Write)
	if err := n.pull("busybox", nil); err != nil {
		t.Fatal(err)
	}
	box := n.run("box", "busybox", "sh", "-c", "echo once >> /began; sleep 1000")
	n.await("the container to begin", func() bool { return n.exec(box, "sh", "-c", "cat /began || true") == "once" })
	well := func(when string) {
		t.Helper()
		n.await("containerd "+when, func() bool {
			_, err := n.Version(t.Context(), &cri.VersionRequest{})
			return err == nil
		})
		if s := n.state(box); s != cri.ContainerState_CONTAINER_RUNNING {
			t.Fatalf("%s the container is %s", when, s)
		}
		if got := n.exec(box, "cat", "/began"); got != "once" {
			t.Fatalf("%s the container says %q", when, got)
		}
	}
	shim, containerd := n.one("containerd-shim-runc-v2"), n.one("containerd")

	n.runtime.Detach()
	well("without skiff")
	n.start()
	well("with another skiff")
	if got := n.one("containerd"); got != containerd {
		t.Errorf("containerd %d was replaced by %d, not adopted", containerd, got)
	}

	for range 2 {
		before := n.one("containerd")
		kill(t, before)
		n.await("another containerd", func() bool { p := n.programs("containerd"); return len(p) == 1 && p[0] != before })
		well("after containerd was killed")
	}

	// A containerd that does not answer any more is replaced.
	n.runtime.Detach()
	stopped := n.one("containerd")
	if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	n.start()
	if got := n.one("containerd"); got == stopped {
		t.Error("containerd was adopted although it does not answer")
	}
	well("after containerd hung")

	// A containerd with another configuration replaces it.
	n.runtime.Detach()
	before := n.one("containerd")
	n.options.Debug = true
	n.start()
	if got := n.one("containerd"); got == before {
		t.Error("containerd was adopted although its configuration is another")
	}
	well("with another configuration")
	if got := n.one("containerd-shim-runc-v2"); got != shim {
		t.Errorf("shim %d was replaced by %d", shim, got)
	}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(shim) + "/cgroup")
	if err != nil || !strings.Contains(string(data), n.runtime.Paths().Cgroup) {
		t.Errorf("the shim is not in %s: %v\n%s", n.runtime.Paths().Cgroup, err, data)
	}
	if sid, err := syscall.Getpgid(n.one("containerd")); err != nil || sid == syscall.Getpgrp() {
		t.Errorf("containerd is in our process group: %v", err)
	}
	n.remove(box)
}

// When all that knew of containers is gone, what they had is still found and removed; a new start finds data, and no surprises.
func TestCleanAfterAll(t *testing.T) {
	n := newNode(t, "10.199.3.0/24", "busybox")
	n.configure(n.network.Write)
	if err := n.pull("busybox", nil); err != nil {
		t.Fatal(err)
	}
	n.run("orphan", "busybox", "sleep", "1000")
	n.run("other", "busybox", "sleep", "1000")
	n.runtime.Detach()
	kill(t, n.one("containerd"), n.programs("containerd-shim-runc-v2")[0])
	for range 2 { // nothing to do is no error
		if err := bundle.Clean(context.Background(), n.data); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2"} {
		if pids := n.programs(name); len(pids) > 0 {
			t.Errorf("%s still runs: %v", name, pids)
		}
	}
	n.start()
	list, err := n.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("sandboxes: %v, %v", list, err)
	}
	for _, s := range list.Items {
		if s.State != cri.PodSandboxState_SANDBOX_NOTREADY {
			t.Errorf("sandbox %s is %s", s.Metadata.Name, s.State)
		}
		n.remove(&pod{id: s.Id})
	}
	again := n.run("again", "busybox", "sleep", "1000")
	if got := n.exec(again, "hostname"); got != "again" {
		t.Errorf("hostname is %q", got)
	}
	n.remove(again)
}
