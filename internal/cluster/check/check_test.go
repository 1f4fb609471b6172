//go:build linux

package check

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

func file(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestCgroups(t *testing.T) {
	v1 := fstest.MapFS{}
	for _, c := range cgroupControllers {
		v1["sys/fs/cgroup/"+c+"/tasks"] = &fstest.MapFile{}
	}
	v1Partial := fstest.MapFS{"sys/fs/cgroup/cpu/tasks": &fstest.MapFile{}}
	v2 := fstest.MapFS{"sys/fs/cgroup/cgroup.controllers": &fstest.MapFile{Data: []byte("cpuset cpu io memory hugetlb pids\n")}}
	v2Partial := fstest.MapFS{"sys/fs/cgroup/cgroup.controllers": &fstest.MapFile{Data: []byte("cpu io\n")}}
	for name, c := range map[string]struct {
		root  fstest.MapFS
		level Level
		says  string
	}{
		"v1": {v1, OK, "version 1"}, "v1 without memory": {v1Partial, Problem, "cpuset, memory, pids"},
		"v2": {v2, OK, "version 2"}, "v2 without memory": {v2Partial, Problem, "cpuset, memory, pids"},
	} {
		if got := cgroups(c.root); got.Level != c.level || !strings.Contains(got.Detail, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestCapabilities(t *testing.T) {
	for status, want := range map[string]Level{
		"CapEff:\t000001ffffffffff\n": OK, "CapEff:\t000001fffeffffff\n": Note, "CapEff:\t00000000a80425fb\n": Problem,
	} {
		if got := capabilities(file(t, status)); got[0].Level != want {
			t.Errorf("%q: %+v", status, got)
		}
	}
}

func TestLocalVolumes(t *testing.T) {
	dir := t.TempDir()
	if f := localVolumes(dir, dir); f.Level != Note || f.Detail != "no mkfs.ext4, e2fsck, resize2fs" {
		t.Errorf("%+v", f)
	}
	for _, program := range []string{"mkfs.ext4", "e2fsck", "resize2fs"} {
		if err := os.WriteFile(filepath.Join(dir, program), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if f := localVolumes("/nowhere:"+dir, filepath.Join(dir, "loop")); f.Level != Note || f.Detail != "the kernel has no loop devices" {
		t.Errorf("%+v", f)
	}
	if f := localVolumes("/nowhere:"+dir, dir); f.Level != OK {
		t.Errorf("%+v", f)
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{"6.18.0-rc1": false, "5.4": false, "5.10.0-8-amd64": false, "5.3.99": true, "4.19": true, "5": true, "6": false} {
		if older(version, oldestKernel) != want {
			t.Errorf("older(%s) is not %v", version, want)
		}
	}
}

func TestPorts(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if got := ports(map[int]string{port: "API"}); len(got) != 1 || got[0].Level != Problem || !strings.Contains(got[0].Detail, "the API needs it") {
		t.Errorf("a taken port: %+v", got)
	}
	l.Close()
	if got := ports(map[int]string{port: "API"}); len(got) != 1 || got[0].Level != OK {
		t.Errorf("a free port: %+v", got)
	}
}

func TestLeftovers(t *testing.T) {
	mounts := file(t, "22 1 8:1 / / rw - ext4 /dev/a rw\n30 22 0:3 / /data/kubelet/pods/u/v rw - tmpfs t rw\n31 22 0:3 / /database rw - tmpfs t rw\n")
	if got := leftovers(Options{DataDir: "/data"}, mounts); got[0].Level != Note || !strings.Contains(got[0].Detail, "1 mounts") {
		t.Errorf("%+v", got)
	}
	if got := leftovers(Options{DataDir: "/data", Running: true}, mounts); got[0].Level != OK {
		t.Errorf("%+v", got)
	}
}

// TestPrint: Print shows each finding and what to do about it, and returns the number of problems. This machine has none, as tests of nodes run on it.
func TestPrint(t *testing.T) {
	var out strings.Builder
	problems := Print(&out, []Finding{ok("kernel", "Linux 6"), problem("user", "run it with sudo", "uid 5")})
	want := "  ok       kernel         Linux 6\n  problem  user           uid 5\n                          -> run it with sudo\n"
	if out.String() != want || problems != 1 {
		t.Errorf("%d problems:\n%s", problems, out.String())
	}
	out.Reset()
	if problems := Print(&out, Machine(Options{DataDir: filepath.Join(t.TempDir(), "not", "there")})); problems != 0 {
		t.Errorf("this machine:\n%s", out.String())
	}
}
