package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// newPod returns a pod of one container; resources are given as "cpu=100m/200m memory=-/64Mi": request/limit.
func newPod(uid types.UID, what string) *corev1.Pod {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for word := range strings.FieldsSeq(what) {
		name, values, _ := strings.Cut(word, "=")
		request, limit, _ := strings.Cut(values, "/")
		if request != "-" {
			r.Requests[corev1.ResourceName(name)] = resource.MustParse(request)
		}
		if limit != "-" {
			r.Limits[corev1.ResourceName(name)] = resource.MustParse(limit)
		}
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: uid},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: r}}}}
}

// onThisMachine returns a manager of real groups below a root of the test's own, which is removed at the end.
func onThisMachine(t *testing.T) *Manager {
	t.Helper()
	m, err := New(Options{Root: fmt.Sprintf("/skifftest-%d-%d", os.Getpid(), time.Now().UnixNano()), PodPidsLimit: 100,
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("1Gi"), "pid": resource.MustParse("5000")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.RemoveAll(); err != nil {
			t.Error(err)
		}
		for _, h := range m.hierarchies {
			if err := os.Remove(filepath.Join(h.Dir, m.rootPath())); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
	})
	if err := m.Setup(); err != nil {
		t.Fatal(err)
	}
	return m
}

// value reads a file of a group: by its name in v1, or in v2.
func value(t *testing.T, m *Manager, path, v1, v2 string) string {
	t.Helper()
	name := v1
	if m.version == 2 {
		name = v2
	}
	controller, _, _ := strings.Cut(v1, ".")
	dir, ok := m.dir(controller, path)
	if !ok {
		t.Fatalf("no hierarchy for %s", controller)
	}
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(content))
}

func TestGroupsOfAllPods(t *testing.T) {
	m := onThisMachine(t)
	root := m.classPath(corev1.PodQOSGuaranteed)
	if m.version == 1 {
		for file, want := range map[string]string{"cpu.shares": "2048", "memory.limit_in_bytes": "1073741824", "pids.max": "5000"} {
			if got := value(t, m, root, file, ""); got != want {
				t.Errorf("kubepods has %s %s, want %s", file, got, want)
			}
		}
		if got := value(t, m, root+"/besteffort", "cpu.shares", ""); got != "2" {
			t.Errorf("best-effort pods have %s shares", got)
		}
	}
	weight := func(v1, v2, when string) {
		t.Helper()
		if got, want := value(t, m, root+"/burstable", "cpu.shares", "cpu.weight"), map[int]string{1: v1, 2: v2}[m.version]; got != want {
			t.Errorf("%s burstable pods have the weight %s, want %s", when, got, want)
		}
	}
	weight("2", "1", "without any")
	for uid, what := range map[types.UID]string{"a": "cpu=100m/-", "b": "cpu=400m/1", "c": "cpu=1/1 memory=1Gi/1Gi", "d": ""} {
		if _, err := m.Ensure(newPod(uid, what)); err != nil {
			t.Fatal(err)
		}
	}
	weight("512", "20", "two with half a processor:")
	if err := m.Resize(newPod("a", "cpu=600m/-")); err != nil {
		t.Fatal(err)
	}
	weight("1024", "39", "two with one processor:")
	again, err := New(m.opts) // a process that was started again
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Setup(); err != nil {
		t.Fatal(err)
	}
	weight("1024", "39", "after a restart")
	if err := again.Remove("a"); err != nil {
		t.Fatal(err)
	}
	weight("409", "16", "with four tenths of a processor")
	for _, uid := range []types.UID{"b", "c", "d"} {
		if err := again.Remove(uid); err != nil {
			t.Fatal(err)
		}
	}
	weight("2", "1", "when all are gone")
}

func TestPodOnThisMachine(t *testing.T) {
	m := onThisMachine(t)
	pod := newPod("11111111-2222-3333-4444-555555555555", "cpu=100m/500m memory=32Mi/64Mi")
	path, err := m.Ensure(pod)
	if err != nil {
		t.Fatal(err)
	}
	if want := m.rootPath() + "/kubepods/burstable/pod11111111-2222-3333-4444-555555555555"; path != want {
		t.Errorf("the group is %s, want %s", path, want)
	}
	if m.version == 1 {
		for file, want := range map[string]string{"cpu.shares": "102", "cpu.cfs_quota_us": "50000", "cpu.cfs_period_us": "100000",
			"memory.limit_in_bytes": "67108864", "pids.max": "100"} {
			if got := value(t, m, path, file, ""); got != want {
				t.Errorf("%s is %s, want %s", file, got, want)
			}
		}
		if cpus, all := value(t, m, path, "cpuset.cpus", ""), value(t, m, "/", "cpuset.cpus", ""); cpus != all {
			t.Errorf("the pod may run on processors %q, want %q", cpus, all)
		}
	}
	resized := newPod(pod.UID, "cpu=200m/1 memory=32Mi/128Mi")
	if _, err := m.Ensure(resized); err != nil {
		t.Fatal(err)
	}
	if got := value(t, m, path, "memory.limit_in_bytes", "memory.max"); got != "67108864" {
		t.Errorf("a second Ensure changed the memory limit to %s", got)
	}
	if err := m.Resize(resized); err != nil {
		t.Fatal(err)
	}
	if got := value(t, m, path, "memory.limit_in_bytes", "memory.max"); got != "134217728" {
		t.Errorf("after a resize the memory limit is %s", got)
	}

	// A container in it, with a process that holds memory: little use is counted late.
	const id = "0123abcd"
	if _, err := m.make(path + "/" + id); err != nil {
		t.Fatal(err)
	}
	cmd := start(t, m, path+"/"+id, "x=$(head -c 8000000 /dev/zero | tr '\\0' x); echo done; read end; echo $x")
	for what, read := range map[string]func() (Usage, error){
		"pod":       func() (Usage, error) { return m.Usage(pod.UID) },
		"container": func() (Usage, error) { return m.ContainerUsage(pod.UID, id) },
		"pods":      m.PodsUsage,
		"node":      m.NodeUsage,
	} {
		u, err := read()
		for began := time.Now(); err == nil && u.RSS*u.PageFaults == 0 && time.Since(began) < 5*time.Second; u, err = read() {
			time.Sleep(10 * time.Millisecond) // the kernel adds up what is below a group every two seconds
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if u.CPU <= 0 || u.Memory == 0 || u.Processes == 0 || u.PageFaults == 0 || u.RSS == 0 || u.WorkingSet > u.Memory || u.Time.IsZero() {
			t.Errorf("the %s uses %+v", what, u)
		}
	}
	if u, _ := m.Usage(pod.UID); u.MemoryLimit != 128<<20 {
		t.Errorf("the pod's memory limit is reported as %d", u.MemoryLimit)
	}
	if _, err := m.ContainerUsage(pod.UID, "other"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a container that does not exist: %v", err)
	}
	if left, err := m.Left(); err != nil || len(left) != 1 || left[0] != pod.UID {
		t.Errorf("left: %v, %v", left, err)
	}

	if err := m.Remove(pod.UID); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process in the group ended with %v", err)
	}
	if left, err := m.Left(); err != nil || len(left) != 0 {
		t.Errorf("left after removal: %v, %v", left, err)
	}
	if dirs := m.podDirs(pod.UID); len(dirs) > 0 {
		t.Errorf("left on disk: %v", dirs)
	}
	if _, err := m.Usage(pod.UID); !errors.Is(err, ErrNotFound) {
		t.Errorf("usage of a removed pod: %v", err)
	}
	if err := m.Remove(pod.UID); err != nil {
		t.Errorf("removing it again: %v", err)
	}
}

// start runs a shell in a group of every hierarchy, and returns when it has said something.
func start(t *testing.T, m *Manager, path, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "read start; "+script)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for _, h := range m.hierarchies {
		if m.used(h) {
			if err := write(filepath.Join(h.Dir, path, "cgroup.procs"), fmt.Sprint(cmd.Process.Pid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	fmt.Fprintln(stdin, "go")
	if err := stdout.(*os.File).SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := stdout.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func TestRemoveWhatIsFrozenAndForks(t *testing.T) {
	m := onThisMachine(t)
	pod := newPod("frozen", "")
	path, err := m.Ensure(pod)
	if err != nil {
		t.Fatal(err)
	}
	cmd := start(t, m, path, "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; echo done; wait")
	if dir, ok := m.dir("freezer", path); ok && m.version == 1 {
		if err := write(filepath.Join(dir, "freezer.state"), "FROZEN"); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Remove(pod.UID); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the shell ended by itself")
	}
	if dirs := m.podDirs(pod.UID); len(dirs) > 0 {
		t.Errorf("left on disk: %v", dirs)
	}
}

// TestLimitsHold has the kernel refuse more processes than a pod may have.
func TestLimitsHold(t *testing.T) {
	m := onThisMachine(t)
	path, err := m.Ensure(newPod("bomb", ""))
	if err != nil {
		t.Fatal(err)
	}
	dir, ok := m.dir("pids", path)
	if !ok {
		t.Fatal("no hierarchy counts processes")
	}
	start(t, m, path, "(i=0; while [ $i -lt 200 ]; do sleep 1000 >/dev/null & i=$((i+1)); done) 2>/dev/null; echo done; exec sleep 1000")
	if u, err := m.Usage("bomb"); err != nil || u.Processes > 100 {
		t.Errorf("%d processes run, %v", u.Processes, err)
	}
	if events, err := os.ReadFile(filepath.Join(dir, "pids.events")); err != nil || strings.HasPrefix(string(events), "max 0") {
		t.Errorf("no fork was refused: %s %v", events, err)
	}
}

func TestUIDsThatNameNoGroup(t *testing.T) {
	m := onThisMachine(t)
	for _, uid := range []types.UID{"", "..", "../../x", "a/b", "a_b"} {
		if _, err := m.Ensure(newPod(uid, "")); err == nil {
			t.Errorf("a group for %q", uid)
		}
		if err := m.Remove(uid); err == nil {
			t.Errorf("%q removed", uid)
		}
		if _, err := m.Usage(uid); err == nil {
			t.Errorf("usage of %q", uid)
		}
	}
	for _, root := range []string{"..", "/a/../b", "./x"} {
		if _, err := New(Options{Root: root}); err == nil {
			t.Errorf("root %q accepted", root)
		}
	}
}
