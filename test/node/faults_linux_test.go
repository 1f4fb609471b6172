package node

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/images"
	"skiff/internal/kubelet/cri"
)

// What goes wrong with a whole node does not stop it. What goes wrong with a pod or what it needs is among the cases of TestKubelet.
func TestFaults(t *testing.T) {
	t.Run("API unreachable", apiUnreachable)
	if *slow {
		t.Run("disk full", diskFull)
	}
}

// testRegistry is a registry with one image that is like busybox.
type testRegistry struct {
	server  *httptest.Server
	address string
	corrupt atomic.Bool // it changes a byte of every layer
}

// newTestRegistry returns a registry that does not answer before open is called.
func (s *testNamespace) newTestRegistry() *testRegistry {
	s.Helper()
	store, err := images.Open(s.TempDir())
	if err != nil {
		s.Fatal(err)
	}
	behind := httptest.NewServer(images.Handler(store))
	s.Cleanup(behind.Close)
	s.fill(store)
	r := &testRegistry{}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind.Listener.Addr().String()})
	proxy.ModifyResponse = func(answer *http.Response) error {
		if r.corrupt.Load() && strings.Contains(answer.Request.URL.Path, "/blobs/") && answer.ContentLength > 100_000 {
			answer.Body = &damaged{ReadCloser: answer.Body}
		}
		return nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	r.address = l.Addr().String()
	closeAll(l)
	r.server = &httptest.Server{Config: &http.Server{Handler: proxy, ReadHeaderTimeout: time.Minute}}
	return r
}

// open has the registry answer.
func (r *testRegistry) open(s *testNamespace) {
	s.Helper()
	l, err := net.Listen("tcp", r.address)
	if err != nil {
		s.Fatal(err)
	}
	r.server.Listener = l
	r.server.Start()
	s.Cleanup(r.server.Close)
}

// fill has a registry hold an image whose layers no other image has.
func (s *testNamespace) fill(store *images.Store) {
	s.Helper()
	f, err := os.Open(archive(s.T, "busybox"))
	if err != nil {
		s.Fatal(err)
	}
	defer closeAll(f)
	if _, err := store.Load(s.Context(), f, ""); err != nil {
		s.Fatal(err)
	}
	dir := s.TempDir()
	for name, content := range map[string]string{"Dockerfile": "FROM busybox\nCOPY content /\n", "content": strings.Repeat(s.name+"\n", 20_000)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			s.Fatal(err)
		}
	}
	name, err := images.ParseName("far:1")
	if err != nil {
		s.Fatal(err)
	}
	if _, err := store.Build(s.Context(), dir, "", name); err != nil {
		s.Fatal(err)
	}
}

func (r *testRegistry) image() string { return r.address + "/library/far:1" }

// damaged changes the first byte that is read.
type damaged struct {
	io.ReadCloser
	done bool
}

func (d *damaged) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if n > 0 && !d.done {
		p[0], d.done = p[0]^1, true
	}
	return n, err
}

// pulls creates a pod whose image cannot be pulled for a reason, and waits until it runs once the image can be pulled.
func (r *testRegistry) pulls(s *testNamespace, because string, mend func()) {
	s.Helper()
	p := newPod("far", sh("main", forever))
	p.Spec.Containers[0].Image = r.image()
	s.create(p)
	s.wait("far", "to wait for its image", func(p *corev1.Pod) bool {
		return waiting(p, "main") == "ErrImagePull" || waiting(p, "main") == "ImagePullBackOff"
	})
	s.awaitEvent("far", "Pulling: Pulling image \""+r.image()+"\"")
	s.awaitEvent("far", "Failed: Failed to pull image \""+r.image()+"\"", because)
	s.awaitEvent("far", "Failed: Error: ErrImagePull")
	p = s.wait("far", "to wait longer", func(p *corev1.Pod) bool { return waiting(p, "main") == "ImagePullBackOff" })
	if p.Status.Phase != corev1.PodPending || condition(p, corev1.PodReady).Reason != "ContainersNotReady" {
		s.Errorf("meanwhile the pod is %s: %+v", p.Status.Phase, condition(p, corev1.PodReady))
	}
	s.awaitEvent("far", "BackOff: Back-off pulling image \""+r.image()+"\"")
	mend()
	s.running("far")
	s.awaitEvent("far", "Pulled: Successfully pulled image \""+r.image()+"\"")
}

// A corrupted image is not run. When the registry has a good one, the pod starts by itself.
func imageCorrupt(s *testNamespace) {
	r := s.newTestRegistry()
	r.corrupt.Store(true)
	r.open(s)
	r.pulls(s, "digest", func() { r.corrupt.Store(false) })
}

// A pull from a registry that does not answer is retried, and the pod starts by itself when it answers.
func registryDown(s *testNamespace) {
	r := s.newTestRegistry()
	r.pulls(s, "connection refused", func() { r.open(s) })
}

// When CNI fails, pods wait and say why, those that end wait for it, too, and those that run are not touched. Both go on by themselves when it works again.
func cniFails(s *testNamespace) {
	neighbour, leaving := testserver("main"), sh("main", forever)
	s.create(newPod("neighbour", neighbour))
	s.create(newPod("leaving", leaving))
	was := s.running("neighbour")
	s.running("leaving")

	plugin := filepath.Join("/opt/cni/bin", "fails")
	config := filepath.Join(s.dir, "cni", "net.d", "00-fails.conflist")
	mend := func() {
		for _, path := range []string{config, plugin, filepath.Dir(plugin)} {
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				s.Error(err)
			}
		}
	}
	s.Cleanup(mend)
	if err := os.MkdirAll(filepath.Dir(plugin), 0o755); err != nil {
		s.Fatal(err)
	}
	script := "#!/bin/sh\nif [ \"$CNI_COMMAND\" = VERSION ]; then echo '{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"1.0.0\"]}'; exit; fi\necho '{\"cniVersion\":\"1.0.0\",\"code\":100,\"msg\":\"no more wires\"}'; exit 1\n"
	if err := os.WriteFile(plugin, []byte(script), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(`{"cniVersion":"1.0.0","name":"fails","plugins":[{"type":"fails"}]}`), 0o644); err != nil {
		s.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // containerd looks at it when it changes
	s.create(newPod("waits", sh("main", "echo connected; "+forever)))
	s.awaitEvent("waits", "FailedCreatePodSandBox: Failed to create pod sandbox: ", "no more wires")
	p := s.get("waits")
	if c := condition(p, "PodReadyToStartContainers"); p.Status.Phase != corev1.PodPending || waiting(p, "main") != "ContainerCreating" || c.Status != corev1.ConditionFalse {
		s.Errorf("while CNI fails the pod is %s, its container waits for %q, ready to start containers: %+v", p.Status.Phase, waiting(p, "main"), c)
	}
	if err := s.api.CoreV1().Pods(s.name).Delete(s.Context(), "leaving", metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
	s.awaitEvent("leaving", "FailedKillPod: error killing pod: ", "no more wires")
	if got := get("http://" + was.Status.PodIP + ":8080/hostname"); got != "neighbour\n" {
		s.Errorf("meanwhile the neighbour says %q", got)
	}
	mend()
	s.running("waits")
	s.await("the pod that ends to be gone", func() bool {
		list, err := s.api.CoreV1().Pods(s.name).List(s.Context(), metav1.ListOptions{FieldSelector: "metadata.name=leaving"})
		return err == nil && len(list.Items) == 0
	})
	if is := s.get("neighbour"); container(is, "main").ContainerID != container(was, "main").ContainerID {
		s.Errorf("the neighbour was %+v and is %+v", was.Status, is.Status)
	}
	runtime, err := cri.Connect("unix://" + filepath.Join(s.runDir(), "containerd.sock"))
	if err != nil {
		s.Fatal(err)
	}
	defer closeAll(runtime)
	s.await("the tries to have left nothing", func() bool { // other cases' pods may be ending
		sandboxes, err := runtime.ListPodSandboxes(s.Context(), nil)
		connected := func(line string) bool {
			return slices.ContainsFunc(sandboxes, func(p *runtimeapi.PodSandbox) bool {
				return p.State == runtimeapi.PodSandboxState_SANDBOX_READY && strings.Contains(line, p.Id)
			})
		}
		left := slices.DeleteFunc(s.inventory(s)["addresses"], connected)
		return err == nil && len(left) == 0
	})
}

// A fork bomb stops at the PID limit of its pod: neighbours, exec and new pods are not affected.
func forkBomb(s *testNamespace) {
	s.create(newPod("neighbour", testserver("main"), sh("side", forever)))
	was := s.running("neighbour")
	s.create(newPod("bomb", sh("main", "bomb() { bomb & bomb & sleep 1000; }; bomb")))
	s.wait("bomb", "to have started", func(p *corev1.Pod) bool {
		return container(p, "main").State.Running != nil || container(p, "main").State.Terminated != nil
	})
	group := s.groups("pids", s.get("bomb"))
	limit, most := s.number(s.value(group, "pids.max", "pids.max")), 0
	if limit <= 0 {
		s.Fatalf("the pod may have %d processes", limit)
	}
	s.await("the bomb to have gone off", func() bool {
		most = max(most, s.number(s.value(group, "pids.current", "pids.current")))
		return most > limit*9/10
	})
	if most > limit {
		s.Errorf("the bomb had %d processes of at most %d", most, limit)
	}
	began := time.Now()
	if got := get("http://" + was.Status.PodIP + ":8080/hostname"); got != "neighbour\n" {
		s.Errorf("the neighbour says %q", got)
	}
	if got := s.output(newPod("new", sh("main", "echo new"))); got != "new\n" {
		s.Errorf("a new pod says %q", got)
	}
	s.Logf("%d processes of at most %d; a new pod took %.1f s meanwhile", most, limit, time.Since(began).Seconds())
	if took := s.delete("bomb"); took > 30*time.Second {
		s.Errorf("the bomb took %v to end", took)
	}
	s.unharmed(was)
}

// number reads a number from a file of a cgroup; 0 if the cgroup was removed.
func (s *testNamespace) number(text string) (n int) {
	_, _ = fmt.Sscan(text, &n)
	return n
}

// unharmed checks that nothing has happened to a pod and the node.
func (s *testNamespace) unharmed(was *corev1.Pod) {
	s.Helper()
	is := s.get(was.Name)
	for _, c := range was.Status.ContainerStatuses {
		if now := container(is, c.Name); now.ContainerID != c.ContainerID || now.RestartCount != 0 || !now.Ready {
			s.Errorf("container %s of %s was %+v and is %+v", c.Name, was.Name, c, now)
		}
	}
	n, err := s.api.CoreV1().Nodes().Get(s.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if (c.Status == corev1.ConditionTrue) != (c.Type == corev1.NodeReady) {
			s.Errorf("the node's condition %s is %s: %s", c.Type, c.Status, c.Message)
		}
	}
}

// A container that exceeds its memory limit is OOM-killed and restarted later; neighbours, also in the same pod, are not affected.
func memoryHog(s *testNamespace) {
	s.create(newPod("neighbour", testserver("main")))
	was := s.running("neighbour")
	hog := newPod("hog", sh("main", "tail /dev/zero"), sh("side", forever))
	hog.Spec.RestartPolicy = corev1.RestartPolicyAlways
	hog.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")}
	s.create(hog)
	p := s.wait("hog", "to be killed twice", func(p *corev1.Pod) bool {
		return container(p, "main").RestartCount > 0 && waiting(p, "main") == "CrashLoopBackOff"
	})
	if end := container(p, "main").LastTerminationState.Terminated; end == nil || end.Reason != "OOMKilled" || end.ExitCode != 137 {
		s.Errorf("it ended so: %+v", end)
	}
	s.awaitEvent("hog", "BackOff: Back-off restarting failed container main in pod hog_")
	if c := container(p, "side"); c.State.Running == nil || c.RestartCount != 0 {
		s.Errorf("what shares the pod with it: %+v", c)
	}
	if got := get("http://" + was.Status.PodIP + ":8080/hostname"); got != "neighbour\n" {
		s.Errorf("the neighbour says %q", got)
	}
	s.unharmed(was)
}

// logBytes is how much a container writes that floods its log, and logMost how much of that may be on the disk at a time.
const logBytes, logMost = 2 << 30, 1 << 30

// A container that writes as fast as it can does not fill the disk.
func logFlood(s *testNamespace) {
	s.create(newPod("neighbour", testserver("main")))
	was := s.running("neighbour")
	p := newPod("floods", sh("main", fmt.Sprintf("yes %s | head -c %d; touch /shared/over; %s", strings.Repeat("x", 1000), logBytes, forever)))
	shared := s.mounted(p)
	s.create(p)
	p = s.running("floods")
	dir := filepath.Join(s.dir, "log", "pods", fmt.Sprintf("%s_floods_%s", s.name, p.UID), "main")
	size := func() (sum int64, files int) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			s.Fatal(err)
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return sum, len(entries)
	}
	var most int64
	var slowest time.Duration
	began := time.Now()
	s.await("the flood to be over", func() bool {
		asked := time.Now()
		if got := get("http://" + was.Status.PodIP + ":8080/hostname"); got != "neighbour\n" {
			s.Errorf("the neighbour says %q", got)
		}
		slowest = max(slowest, time.Since(asked))
		now, files := size()
		if most = max(most, now); files > 6 { // one more while it is compressed
			s.Errorf("there are %d files", files)
		}
		_, err := os.Stat(filepath.Join(shared, "over"))
		return s.Failed() || err == nil
	})
	took := time.Since(began)
	s.Logf("%d MiB in %.1f s, at most %d MiB of them on the disk; the neighbour answered within %v", logBytes>>20, took.Seconds(), most>>20, slowest)
	if most > logMost {
		s.Errorf("the log took %d bytes", most)
	}
	s.unharmed(was)
}
