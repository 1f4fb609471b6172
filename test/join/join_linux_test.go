package join

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"skiff/test/program"
)

const (
	awaitTime = 2 * time.Minute // long: others may be busy on the machine
	firstURL  = "https://" + firstIP
)

// fixture is a server without a node on this machine, and another machine.
type fixture struct {
	t               *testing.T // of the whole
	dir, home, port string
	server          *process
	second          *machine
	config          *rest.Config
	api             kubernetes.Interface
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{t: t, dir: filepath.Join(t.TempDir(), "data"), home: t.TempDir(), port: program.Port(t), second: newMachine(t)}
	w.serve(t)
	var err error
	w.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(w.dir, "admin.kubeconfig"))
	must(t, err)
	w.config.QPS, w.config.Burst = 500, 500
	w.api, err = kubernetes.NewForConfig(w.config)
	must(t, err)
	return w
}

// serve starts the server and waits until it answers.
func (w *fixture) serve(t *testing.T) {
	t.Helper()
	kubeconfig := filepath.Join(w.dir, "admin.kubeconfig")
	if err := os.Remove(kubeconfig); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	cmd := exec.Command(program.Path(t), "server", "--no-node", "--bind-address", "0.0.0.0", "--advertise-address", firstIP, "--name", "join", "--data-dir", w.dir, "--port", w.port)
	cmd.Env = append(os.Environ(), "HOME="+w.home, "KUBECONFIG=")
	w.server = start(w.t, cmd)
	w.await(t, "the server", func(context.Context) bool {
		_, err := os.Stat(kubeconfig)
		return err == nil
	})
}

// token creates a token and returns it.
func (w *fixture) token(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := program.Run(t, w.home, append([]string{"token", "create", "--data-dir", w.dir}, args...)...)
	if code != 0 {
		t.Fatalf("skiff token create: %d\n%s%s", code, out, errs)
	}
	if !strings.Contains(errs, "skiff agent --server "+firstURL+":"+w.port+" --token "+strings.TrimSpace(out)) {
		t.Errorf("it does not say what to do with the token:\n%s", errs)
	}
	return strings.TrimSpace(out)
}

func (w *fixture) await(t *testing.T, what string, ok func(context.Context) bool) {
	t.Helper()
	for deadline := time.Now().Add(awaitTime); !ok(t.Context()); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", awaitTime, what)
		}
	}
}

// awaitReady waits until the node's kubelet has reported it Ready since a time.
func (w *fixture) awaitReady(t *testing.T, name string, since time.Time) *corev1.Node {
	t.Helper()
	var node *corev1.Node
	w.await(t, "node "+name+" to be Ready", func(ctx context.Context) bool {
		lease, err := w.api.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Before(&metav1.MicroTime{Time: since}) {
			return false
		}
		if node, err = w.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}); err != nil {
			return false
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	})
	return node
}

func (w *fixture) run(t *testing.T, name, image string, command ...string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: command, Ports: []corev1.ContainerPort{{ContainerPort: 80}}}},
	}}
	w.await(t, "the service account", func(ctx context.Context) bool {
		_, err := w.api.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		return err == nil
	})
	w.await(t, "pod "+name+" to be ready", func(ctx context.Context) bool {
		p, err := w.api.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	})
}

func (w *fixture) exec(t *testing.T, pod, input string, command ...string) string {
	t.Helper()
	request := w.api.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: "c", Command: command, Stdin: input != "", Stdout: true, Stderr: true}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(w.config, "GET", request.URL().String())
	must(t, err)
	var out, errs bytes.Buffer
	o := remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}
	if input != "" {
		o.Stdin = strings.NewReader(input)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := executor.StreamWithContext(ctx, o); err != nil {
		t.Fatalf("exec %v in %s: %v\n%s", command, pod, err, errs.String())
	}
	return out.String()
}

func (w *fixture) get(t *testing.T, path string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	data, err := w.api.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		t.Fatalf("GET %s: %v\n%s", path, err, data)
	}
	return string(data)
}

// A machine with nothing but the program and a token becomes a node. The server reaches all that runs on it though it takes no connections, pods
// outlive its agent, and nobody else gets in.
func TestJoin(t *testing.T) {
	w := newFixture(t)
	m := w.second
	token := w.token(t, "--description", "for the second machine", "--uses", "2")
	for _, image := range []string{"busybox", "nginx", "testserver"} {
		if code, out := m.skiff(t, "image", "load", "--data-dir", m.dir, archive(t, image)); code != 0 {
			t.Fatal(out)
		}
	}
	m.shut(t)
	began := time.Now()
	a := m.agent(t, "--server", firstURL+":"+w.port, "--token", token, "--node-labels", "example.com/rack=7", "--register-with-taints", "example.com/new=yes:PreferNoSchedule")
	t.Cleanup(func() { m.takeDown(t, "second") })
	node := w.awaitReady(t, "second", began)
	t.Logf("Ready %.2f s after the agent was started", time.Since(began).Seconds())
	if node.Labels["example.com/rack"] != "7" || len(node.Spec.Taints) == 0 || node.Status.Addresses[0].Address != secondIP {
		t.Errorf("the node is %v, %v, %v", node.Labels, node.Spec.Taints, node.Status.Addresses)
	}
	w.run(t, "web", "nginx")
	w.run(t, "box", "busybox", "sh", "-c", "echo said; exec sleep 1000000")

	t.Run("the server reaches it", func(t *testing.T) { w.reaches(t, node) })
	t.Run("the API is extended by its pods", func(t *testing.T) { w.extends(t) })
	t.Run("its pods reach the API", func(t *testing.T) {
		w.await(t, "the API to answer at its service", func(context.Context) bool {
			return w.exec(t, "box", "", "sh", "-c", "nc -w 5 10.43.0.1 443 </dev/null >/dev/null && echo reached || true") == "reached\n"
		})
	})
	t.Run("refused", func(t *testing.T) { w.refuses(t, token) })
	t.Run("the server killed", func(t *testing.T) {
		before := w.container(t, "web")
		w.server.end(syscall.SIGKILL)
		w.serve(t)
		w.await(t, "the tunnel to be there again", func(ctx context.Context) bool {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			got, err := w.api.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/pods/web/proxy/").DoRaw(ctx)
			return err == nil && strings.Contains(string(got), "nginx")
		})
		if after := w.container(t, "web"); after != before {
			t.Errorf("the container was %s and is %s", before, after)
		}
	})
	t.Run("killed", func(t *testing.T) {
		before := w.container(t, "web")
		a.end(syscall.SIGKILL)
		again := time.Now()
		m.agent(t) // it knows the rest
		w.awaitReady(t, "second", again)
		if after := w.container(t, "web"); after != before {
			t.Errorf("the container was %s and is %s", before, after)
		}
		if got := w.exec(t, "box", "", "hostname"); got != "box\n" {
			t.Errorf("exec says %q", got)
		}
		if code, out := m.skiff(t, "status", "--data-dir", m.dir); code != 0 || !contains(out, "node second is running", firstURL+":"+w.port+", ready") {
			t.Errorf("skiff status: %d\n%s", code, out)
		}
		if code, out := m.skiff(t, "stop", "--data-dir", m.dir); code != 0 || !contains(out, "node second is stopped") {
			t.Errorf("skiff stop: %d\n%s", code, out)
		}
	})
}

func (w *fixture) container(t *testing.T, pod string) string {
	t.Helper()
	p, err := w.api.CoreV1().Pods("default").Get(t.Context(), pod, metav1.GetOptions{})
	must(t, err)
	return p.Status.ContainerStatuses[0].ContainerID
}

// reaches tries every way to a node that takes no connections.
func (w *fixture) reaches(t *testing.T, node *corev1.Node) {
	logs, err := w.api.CoreV1().Pods("default").GetLogs("box", &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil || string(logs) != "said\n" {
		t.Errorf("logs: %q, %v", logs, err)
	}
	if got := w.exec(t, "box", "", "hostname"); got != "box\n" {
		t.Errorf("exec says %q", got)
	}
	const much = 300_000
	if got := w.exec(t, "box", strings.Repeat("x", much), "cat"); len(got) != much {
		t.Errorf("of %d bytes %d came back", much, len(got))
	}
	if got := w.get(t, "/api/v1/nodes/"+node.Name+"/proxy/healthz"); got != "ok" {
		t.Errorf("the kubelet says %q", got)
	}
	if got := w.get(t, "/api/v1/nodes/"+node.Name+"/proxy/metrics/resource"); !strings.Contains(got, "node_cpu_usage_seconds_total") {
		t.Errorf("metrics: %.200s", got)
	}
	if got := w.get(t, "/api/v1/namespaces/default/pods/web/proxy/"); !strings.Contains(got, "nginx") {
		t.Errorf("the pod says %.200s", got)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}}
	_, err = w.api.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{})
	must(t, err)
	w.await(t, "the service to answer", func(ctx context.Context) bool {
		got, err := w.api.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/services/web/proxy/").DoRaw(ctx)
		return err == nil && strings.Contains(string(got), "nginx")
	})
}

// refuses tries everything that must not let a machine in. Each ends at once and says why, and starts nothing.
func (w *fixture) refuses(t *testing.T, token string) {
	pin, bearer, _ := strings.Cut(token, "::")
	expired, deleted, once := w.token(t, "--ttl", "1s"), w.token(t, "--uses", "0"), w.token(t)
	if code, out, errs := program.Run(t, w.home, "token", "delete", "--data-dir", w.dir, deleted); code != 0 {
		t.Fatalf("skiff token delete: %d\n%s%s", code, out, errs)
	}
	w.await(t, "the token to expire", func(ctx context.Context) bool {
		id, _, _ := strings.Cut(strings.TrimPrefix(expired, pin+"::"), ".")
		_, out, _ := program.Run(t, w.home, "token", "list", "--data-dir", w.dir)
		return !strings.Contains(out, id)
	})
	const unknown = "is wrong, has expired, or was used up or deleted"
	for _, c := range []struct{ name, node, token, want string }{
		{"wrong", "third", pin + "::" + bearer[:7] + "0000000000000000", unknown},
		{"expired", "third", expired, unknown},
		{"deleted", "third", deleted, unknown},
		{"another cluster's", "third", strings.Repeat("0", 64) + "::" + bearer, "somebody is in between"},
		{"without a pin", "third", bearer, "does not say which cluster"},
		{"no token", "third", "nonsense", "this is not a token"},
		{"a name that is taken", "second", token, "another machine has that name"},
		{"none", "third", "", "--server and --token"},
	} {
		code, out := w.second.skiff(t, "agent", "--data-dir", filepath.Join(t.TempDir(), "data"), "--node-name", c.node, "--server", firstURL+":"+w.port, "--token", c.token,
			"--kubelet-port", program.Port(t), "--registry-address", "127.0.0.1:"+program.Port(t))
		if code == 0 || !strings.Contains(out, c.want) {
			t.Errorf("%s: %d\n%s", c.name, code, out)
		}
	}
	w.joinsOnce(t, once)
}

// joinsOnce has a token that is for one machine used by two.
func (w *fixture) joinsOnce(t *testing.T, token string) {
	third := &machine{pid: w.second.pid, home: w.second.home, dir: filepath.Join(t.TempDir(), "data"), ns: w.second.ns}
	// A machine has room for the network of one node.
	args := []string{"--node-name", "third", "--disable", "overlay,proxy,dns", "--server", firstURL + ":" + w.port, "--token", token, "--node-ip", secondIP,
		"--kubelet-port", program.Port(t), "--registry-address", "127.0.0.1:" + program.Port(t)}
	began := time.Now()
	t.Cleanup(func() { third.skiff(t, "down", "--purge", "--data-dir", third.dir) }) // should the following fail
	third.agent(t, args...)
	w.awaitReady(t, "third", began)
	third.takeDown(t, "third")
	must(t, w.api.CoreV1().Nodes().Delete(t.Context(), "third", metav1.DeleteOptions{})) // it has the address of the second
	args[1] = "fourth"
	if code, out := third.skiff(t, append([]string{"agent", "--data-dir", third.dir}, args...)...); code == 0 || !contains(out, "used up") {
		t.Errorf("a token for one machine, used by another: %d\n%s", code, out)
	}
}

// takeDown removes all that a node had on the machine, and looks.
func (m *machine) takeDown(t *testing.T, node string) {
	t.Helper()
	if code, out := m.skiff(t, "down", "--purge", "--data-dir", m.dir); code != 0 || !contains(out, "node "+node+" is down", "is removed") {
		t.Errorf("skiff down --purge: %d\n%s", code, out)
	}
	sum := sha256.Sum256([]byte(m.dir))
	if left := groupsLeft("/skiff/" + hex.EncodeToString(sum[:4])); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
