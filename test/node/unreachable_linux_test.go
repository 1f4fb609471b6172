package node

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/bundle"
	"skiff/internal/client"
	"skiff/internal/images"
	"skiff/internal/images/access"
	"skiff/internal/kubelet"
	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/cri"
	"skiff/internal/network/podnet"
	"skiff/test/program"
)

// cuttableProxy is a TCP proxy between a kubelet and its API whose connections can be cut.
type cuttableProxy struct {
	listener net.Listener
	target   string
	done     sync.WaitGroup

	mu     sync.Mutex
	mended chan struct{} // closed unless it is cut
	open   map[net.Conn]bool
}

func newCuttableProxy(t *testing.T, target string) *cuttableProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &cuttableProxy{listener: l, target: target, mended: make(chan struct{}), open: map[net.Conn]bool{}}
	close(w.mended)
	w.done.Go(w.accept)
	t.Cleanup(func() {
		closeAll(l)
		w.mu.Lock()
		for c := range w.open {
			closeAll(c)
		}
		w.mu.Unlock()
		w.done.Wait()
	})
	return w
}

func (w *cuttableProxy) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", w.target)
		if err != nil {
			closeAll(near)
			continue
		}
		w.mu.Lock()
		w.open[near], w.open[far] = true, true
		w.mu.Unlock()
		w.done.Go(func() { w.carry(near, far) })
		w.done.Go(func() { w.carry(far, near) })
	}
}

// carry forwards data, and holds it back while the proxy is cut.
func (w *cuttableProxy) carry(from, to net.Conn) {
	defer closeAll(from, to)
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, from)
		delete(w.open, to)
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		w.mu.Lock()
		mended := w.mended
		w.mu.Unlock()
		<-mended
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

// cut stops all forwarding without closing connections.
func (w *cuttableProxy) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mended = make(chan struct{})
}

func (w *cuttableProxy) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.mended:
	default:
		close(w.mended)
	}
}

// newRemoteKubelet returns a cluster whose kubelet, which runs in this process, reaches the API through a proxy that can be cut.
func newRemoteKubelet(t *testing.T) (*cluster, *cuttableProxy, *cri.Client) {
	t.Helper()
	skiff := program.Path(t)
	connect(t)
	tmp, port := t.TempDir(), program.Port(t)
	c := &cluster{dir: filepath.Join(tmp, "data"), home: filepath.Join(tmp, "home"), kubectl: filepath.Join(filepath.Dir(skiff), "kubectl")}
	c.before, c.kubeconfig = leavesNothing(t, c.dir), filepath.Join(c.dir, "admin.kubeconfig")
	if err := os.MkdirAll(c.home, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"busybox", "testserver"} {
		c.skiff(t, "image", "load", "--data-dir", c.dir, archive(t, image))
	}
	t.Cleanup(func() { c.down(t) })
	c.skiff(t, "up", "--no-node", "--data-dir", c.dir, "--name", "e2e", "--port", port)
	var err error
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		t.Fatal(err)
	}
	if c.api, err = kubernetes.NewForConfig(c.config); err != nil {
		t.Fatal(err)
	}
	w := newCuttableProxy(t, "127.0.0.1:"+port)
	runtime := c.runKubelet(t, skiff, w)
	c.await(t, "the node to be Ready", func() bool { return c.nodeReady(t).Status == corev1.ConditionTrue })
	return c, w, runtime
}

func (c *cluster) nodeReady(t *testing.T) corev1.NodeCondition {
	n, err := c.api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		return corev1.NodeCondition{}
	}
	return nodeCondition(n, corev1.NodeReady)
}

// runKubelet runs a node until the test ends.
func (c *cluster) runKubelet(t *testing.T, skiff string, w *cuttableProxy) *cri.Client {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.DiscardHandler)
	store, err := images.Open(filepath.Join(c.dir, "images"))
	must(err)
	registry, err := access.Serve(access.Options{Dir: filepath.Join(c.dir, "registry"), Address: "127.0.0.1:0", Store: store, Log: log})
	must(err)
	t.Cleanup(func() {
		if err := registry.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	r, err := bundle.Start(t.Context(), bundle.Options{DataDir: c.dir, Images: store, Registry: registry.Access(), Program: skiff, Log: log})
	must(err)
	t.Cleanup(r.Detach) // down ends it
	must(podnet.Config{Dir: r.Paths().CNIConf, State: filepath.Join(c.dir, "cni", "addresses"), PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24")}}.Write())
	runtime, err := cri.Connect(r.Endpoint())
	must(err)
	t.Cleanup(func() { closeAll(runtime) })
	groups, err := cgroup.New(cgroup.Options{Root: cgroupOf(c.dir), PodPidsLimit: 1000})
	must(err)
	config := rest.CopyConfig(c.config)
	config.Host = "https://" + w.listener.Addr().String()
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + nodeName, Groups: []string{"system:nodes", "system:authenticated"}}
	api, err := client.ForConfig(config, "kubelet")
	must(err)
	k, err := kubelet.New(kubelet.Options{Client: api, NodeName: nodeName, NodeIPs: []string{machineIP}, Runtime: runtime, Cgroups: groups,
		RootDir: filepath.Join(c.dir, "kubelet"), LogDir: filepath.Join(c.dir, "log", "pods"), ContainerLogDir: filepath.Join(c.dir, "log", "containers"), Log: log})
	must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := k.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { w.mend(); cancel(); done.Wait() })
	return runtime
}

// While the API cannot be reached, pods run, end and are restarted as before. When it can be reached again, it is told of all that, and what was asked for
// meanwhile is done. With -slow it is away for so long that the node is taken for lost.
func apiUnreachable(t *testing.T) {
	c, w, runtime := newRemoteKubelet(t)
	s := c.space(t)
	stays := newPod("stays", testserver("main"))
	stays.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: handler("http", 8080), PeriodSeconds: 1}
	ends := newPod("ends", sh("main", "if [ -e /shared/go ]; then "+forever+"; fi; until [ -e /shared/go ]; do sleep 0.1; done; exit 5"))
	ends.Spec.RestartPolicy = corev1.RestartPolicyAlways
	once := newPod("once", sh("main", "until [ -e /shared/go ]; do sleep 0.1; done"))
	dirs := []string{s.mounted(ends), s.mounted(once)}
	for _, p := range []*corev1.Pod{stays, ends, once, newPod("leaves", sh("main", forever))} {
		s.create(p)
	}
	was := map[string]*corev1.Pod{}
	for _, name := range []string{"stays", "ends", "once", "leaves"} {
		was[name] = s.running(name)
	}

	w.cut()
	began := time.Now()
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.api.CoreV1().Pods(s.name).Delete(t.Context(), "leaves", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.create(newPod("late", sh("main", forever)))
	s.await("the container that ended to be restarted without the API", func() bool {
		list, err := runtime.ListContainers(t.Context(), &runtimeapi.ContainerFilter{LabelSelector: cri.OfPod(was["ends"].UID)})
		for _, c := range list {
			if err == nil && c.Metadata.Attempt == 1 && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
				return true
			}
		}
		return false
	})
	if p := s.get("ends"); container(p, "main").RestartCount != 0 {
		t.Error("the API was told of the restart: it was not cut off")
	}
	if *slow {
		s.await("the node to be taken for lost", func() bool {
			r := c.nodeReady(t)
			return r.Status == corev1.ConditionUnknown && r.Reason == "NodeStatusUnknown"
		})
		s.wait("stays", "not to be ready as far as the API knows", func(p *corev1.Pod) bool { return condition(p, corev1.PodReady).Status == corev1.ConditionFalse })
		time.Sleep(time.Until(began.Add(70 * time.Second)))
	}
	if got := get("http://" + was["stays"].Status.PodIP + ":8080/hostname"); got != "stays\n" {
		t.Errorf("meanwhile the pod says %q", got)
	}
	away := time.Since(began)
	w.mend()
	began = time.Now()
	s.await("the node to be Ready again", func() bool { return c.nodeReady(t).Status == corev1.ConditionTrue })
	s.running("late")
	s.await("the pod that was deleted to be gone", func() bool {
		_, err := s.api.CoreV1().Pods(s.name).Get(t.Context(), "leaves", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	p := s.wait("ends", "to have been restarted", func(p *corev1.Pod) bool {
		return container(p, "main").RestartCount == 1 && condition(p, corev1.PodReady).Status == corev1.ConditionTrue
	})
	if end := container(p, "main").LastTerminationState.Terminated; end == nil || end.ExitCode != 5 {
		t.Errorf("the container that ended: %+v", end)
	}
	if p := s.awaitEnd("once"); p.Status.Phase != corev1.PodSucceeded {
		t.Errorf("the pod that ended is %s", p.Status.Phase)
	}
	p = s.running("stays")
	if is, was := container(p, "main"), container(was["stays"], "main"); is.ContainerID != was.ContainerID || is.RestartCount != 0 {
		t.Errorf("the container that stays was %+v and is %+v", was, is)
	}
	t.Logf("after %.1f s without the API all was known again within %.1f s", away.Seconds(), time.Since(began).Seconds())
}
