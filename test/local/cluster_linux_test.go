package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/internal/cluster/local"
	"skiff/test/alone"
	"skiff/test/program"
	"skiff/test/traces"
)

func TestMain(m *testing.M) { alone.Main(m) }

// cluster is a cluster of local nodes that a test runs.
type cluster struct {
	dir, home, name string
	api             kubernetes.Interface
	before          []string // what the machine had on it
}

// newCluster returns a cluster that does not run yet. When the test ends it is taken down with all its data, and nothing of it may be left.
func newCluster(t *testing.T, name string) *cluster {
	t.Helper()
	tmp := t.TempDir()
	c := &cluster{dir: filepath.Join(tmp, "data"), home: filepath.Join(tmp, "home"), name: name}
	if err := os.Mkdir(c.home, 0o755); err != nil {
		t.Fatal(err)
	}
	c.before = traces.Of(t, c.group())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.logs())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if local.Exists(c.dir) {
			if err := local.Down(ctx, c.dir); err != nil {
				t.Error(err)
			}
		}
		traces.NothingLeft(t, "the test", c.before, c.group())
		if err := os.RemoveAll(c.dir); err != nil { // it can be: nothing is mounted in it
			t.Error(err)
		}
	})
	return c
}

// group returns the parent of the cluster's cgroups.
func (c *cluster) group() string {
	sum := sha256.Sum256([]byte(c.dir))
	return "/skiff/" + hex.EncodeToString(sum[:4])
}

func (c *cluster) logs() string {
	var out strings.Builder
	files, _ := filepath.Glob(filepath.Join(c.dir, "nodes", "*", "root", "var", "lib", "skiff", "skiff.log"))
	for _, file := range append(files, filepath.Join(c.dir, "skiff.log")) {
		data, err := os.ReadFile(file)
		fmt.Fprintf(&out, "%s: %v\n%s\n", file, err, data)
	}
	return out.String()
}

// skiff runs a command on the cluster.
func (c *cluster) skiff(t testing.TB, args ...string) string {
	t.Helper()
	code, out, errs := c.try(t, args...)
	if code != 0 {
		t.Fatalf("skiff %s: exit code %d\n%s%s\n%s", strings.Join(args, " "), code, out, errs, c.logs())
	}
	return out
}

func (c *cluster) try(t testing.TB, args ...string) (code int, out, errs string) {
	t.Helper()
	return program.Run(t, c.home, append(args, "--data-dir", c.dir)...)
}

// up starts the cluster, or what of it does not run.
func (c *cluster) up(t testing.TB, args ...string) {
	t.Helper()
	began := time.Now()
	out := c.skiff(t, append([]string{"up"}, args...)...)
	t.Logf("skiff up %s took %.2f s:\n%s", strings.Join(args, " "), time.Since(began).Seconds(), out)
	c.connect(t)
}

// connect reaches the API as kubectl on this machine does.
func (c *cluster) connect(t testing.TB) {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(c.dir, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 500, 500
	if c.api, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
}

// load loads images that "make images" has built.
func (c *cluster) load(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join("..", "..", "build", "images", name+".tar")
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v\nmake images builds it", err)
		}
		c.skiff(t, "image", "load", path)
	}
}

// everywhere runs a pod on each node.
func (c *cluster) everywhere(t testing.TB) {
	t.Helper()
	labels := map[string]string{"app": "everywhere"}
	grace := int64(0)
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "everywhere"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{
				Name: "main", Image: "skiff.internal/testserver", ImagePullPolicy: corev1.PullAlways, Args: []string{"--listen=:80"},
			}}},
		}},
	}
	if _, err := c.api.AppsV1().DaemonSets("default").Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// running waits until a pod runs on each of so many nodes, and returns them by node.
func (c *cluster) running(t testing.TB, nodes int) map[string]*corev1.Pod {
	t.Helper()
	var found map[string]*corev1.Pod
	eventually(t, "a pod runs on each node", func() error {
		pods, err := c.api.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=everywhere"})
		if err != nil {
			return err
		}
		found = map[string]*corev1.Pod{}
		for i := range pods.Items {
			p := &pods.Items[i]
			if len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Running != nil && p.Status.ContainerStatuses[0].Ready {
				found[p.Spec.NodeName] = p
			}
		}
		if len(found) != nodes {
			return fmt.Errorf("%d of %d run", len(found), nodes)
		}
		return nil
	})
	return found
}

// ready waits until a node is Ready, or is not any more.
func (c *cluster) ready(t testing.TB, node string, want bool) *corev1.Node {
	t.Helper()
	var n *corev1.Node
	eventually(t, fmt.Sprintf("node %s is Ready: %v", node, want), func() (err error) {
		if n, err = c.api.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady && (condition.Status == corev1.ConditionTrue) != want {
				return fmt.Errorf("it is %s: %s", condition.Status, condition.Message)
			}
		}
		return nil
	})
	return n
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	within(t, 90*time.Second, what, check)
}

// within waits for a condition for so long.
func within(t testing.TB, most time.Duration, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// states returns the states of the nodes by name.
func (c *cluster) states(t testing.TB) map[string]local.State {
	t.Helper()
	all, err := local.Inspect(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]local.State{}
	for _, s := range all {
		out[s.Name] = s
	}
	return out
}

// killAll kills every process of the cluster, in no particular order, and waits until they are gone.
func (c *cluster) killAll(t testing.TB) {
	t.Helper()
	eventually(t, "all processes end", func() error {
		pids := c.processes(t)
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		if len(pids) > 0 {
			return fmt.Errorf("%d are left", len(pids))
		}
		return nil
	})
}

// processes returns the processes in the cluster's cgroups.
func (c *cluster) processes(t testing.TB) (pids []int) {
	t.Helper()
	seen := map[int]bool{}
	roots, err := filepath.Glob("/sys/fs/cgroup/*" + c.group())
	if err != nil {
		t.Fatal(err)
	}
	for _, root := range append(roots, "/sys/fs/cgroup"+c.group()) {
		filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				return nil
			}
			data, _ := os.ReadFile(filepath.Join(path, "cgroup.procs")) // it may be gone
			for _, word := range strings.Fields(string(data)) {
				if pid, err := strconv.Atoi(word); err == nil && pid > 0 && !seen[pid] {
					seen[pid] = true
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	return pids
}
