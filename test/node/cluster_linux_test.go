package node

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/test/program"
)

// slow is set by make e2e.
var slow = flag.Bool("slow", false, "run the cases that take long too")

const nodeName = "node-1"

// cluster is a whole cluster with a node on this machine, as `skiff up` starts it.
type cluster struct {
	dir, home  string
	kubeconfig string
	args       []string // of up
	kubectl    string
	config     *rest.Config
	api        kubernetes.Interface
	before     []string // what the machine had on it
	isDown     bool     // for good
}

// newCluster starts a cluster. When the test ends it is taken down, and nothing of it may be left on the machine.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return newClusterIn(t, t.TempDir())
}

// newClusterIn starts a cluster with all of its data in a directory.
func newClusterIn(t *testing.T, tmp string) *cluster {
	t.Helper()
	skiff := program.Path(t)
	connect(t)
	c := &cluster{dir: filepath.Join(tmp, "data"), home: filepath.Join(tmp, "home")}
	c.before = leavesNothing(t, c.dir)
	c.kubeconfig = filepath.Join(c.dir, "admin.kubeconfig")
	c.args = []string{"up", "--data-dir", c.dir, "--name", "e2e", "--port", program.Port(t), "--registry-address", "127.0.0.1:" + program.Port(t), "--hostname-override", nodeName}
	if c.kubectl = os.Getenv("KUBECTL"); c.kubectl == "" {
		var err error
		if c.kubectl, err = exec.LookPath("kubectl"); err != nil {
			c.kubectl = filepath.Join(filepath.Dir(skiff), "kubectl")
		}
	}
	if err := os.MkdirAll(c.home, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, image := range []string{"busybox", "nginx", "testserver"} {
		c.skiff(t, "image", "load", "--data-dir", c.dir, archive(t, image))
	}
	t.Cleanup(func() { c.down(t) })
	c.up(t)
	return c
}

// skiff runs the program.
func (c *cluster) skiff(t testing.TB, args ...string) string {
	t.Helper()
	code, out, errs := program.Run(t, c.home, args...)
	if code != 0 {
		t.Fatalf("skiff %s: exit code %d\n%s%s\n%s", strings.Join(args, " "), code, out, errs, c.log())
	}
	return out
}

func (c *cluster) up(t testing.TB) {
	t.Helper()
	began := time.Now()
	out := c.skiff(t, c.args...)
	t.Logf("skiff up took %.2f s:\n%s", time.Since(began).Seconds(), out)
	var err error
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		t.Fatal(err)
	}
	c.config.QPS, c.config.Burst = 500, 500
	if c.api, err = kubernetes.NewForConfig(c.config); err != nil {
		t.Fatal(err)
	}
	n, err := c.api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if is := nodeCondition(n, corev1.NodeReady); is.Status != corev1.ConditionTrue || is.LastHeartbeatTime.Unix() < began.Unix() {
		t.Fatalf("skiff up began at %v and has returned; the node is Ready: %+v", began, is)
	}
}

// down takes the cluster down and removes all of its data. It may be called more than once.
func (c *cluster) down(t *testing.T) {
	if t.Failed() {
		t.Log(c.log())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program.Path(t), "down", "--purge", "--data-dir", c.dir, "--name", "e2e")
	cmd.Env = append(os.Environ(), "HOME="+c.home, "KUBECONFIG=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("skiff down --purge: %v\n%s", err, out)
	}
}

// pid returns the process of the cluster.
func (c *cluster) pid(t testing.TB) int {
	t.Helper()
	for line := range strings.Lines(c.skiff(t, "status", "--data-dir", c.dir)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "process" {
			if pid, err := strconv.Atoi(f[1]); err == nil {
				return pid
			}
		}
	}
	t.Fatal("skiff status names no process")
	return 0
}

// log returns the last lines of skiff's log.
func (c *cluster) log() string {
	files, err := filepath.Glob(filepath.Join(c.dir, "*.log"))
	if err != nil || len(files) == 0 {
		return "skiff has logged nothing"
	}
	files = append(files, filepath.Join(c.dir, "containerd", "containerd.log"))
	const most = 20000
	var b strings.Builder
	for _, f := range files {
		data, _ := os.ReadFile(f)
		fmt.Fprintf(&b, "%s:\n%s\n", f, data[max(0, len(data)-most):])
	}
	return b.String()
}

// awaitTimeout is long: the machine may be busy with other tests.
const awaitTimeout = 2 * time.Minute

// await waits for a condition.
func (c *cluster) await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(awaitTimeout); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s\n%s", awaitTimeout, what, c.log())
		}
	}
}

func nodeCondition(n *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	if i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind }); i >= 0 {
		return n.Status.Conditions[i]
	}
	return corev1.NodeCondition{}
}
