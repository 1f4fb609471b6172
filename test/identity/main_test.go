package identity_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/internal/cluster"
	"skiff/internal/controller/all"
	"skiff/test/program"
)

func TestMain(m *testing.M) { program.Main(m) }

// aggregation is the only controller that runs: roles need it. Others would change the objects of tests.
const aggregation = all.Aggregation

// startCluster runs a control plane in this process, on etcd and over HTTPS, and returns its data directory.
func startCluster(t *testing.T, change func(*cluster.Config)) string {
	t.Helper()
	port, err := strconv.Atoi(program.Port(t))
	if err != nil {
		t.Fatal(err)
	}
	config := cluster.Config{DataDir: t.TempDir(), Port: port, Controllers: []string{aggregation}, Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&config)
	}
	server, err := cluster.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return config.DataDir
}

// configOf returns the client configuration of a kubeconfig in a data directory.
func configOf(t *testing.T, dataDir, name string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dataDir, name+".kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// withToken returns a configuration for the same server with nothing but a bearer token, or without credentials if it is empty.
func withToken(config *rest.Config, token string) *rest.Config {
	c := rest.AnonymousClientConfig(config)
	c.QPS, c.BearerToken = -1, token
	return c
}

// wait retries until a function succeeds.
func wait(t *testing.T, what string, try func() error) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s: %v", what, err)
		}
	}
}

// defaultAccount creates the default service account of a namespace, unless a controller has done so.
func defaultAccount(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func newAccount(t *testing.T, client kubernetes.Interface, namespace, name string) *corev1.ServiceAccount {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	account, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return account
}

func newNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

// process is a process of the program.
type process struct {
	t     *testing.T
	args  []string
	data  string
	log   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// startProgram starts the program and waits until its API answers. It is killed when the test ends.
func startProgram(t *testing.T, args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{t: t, data: filepath.Join(dir, "data"), log: filepath.Join(dir, "log")}
	p.args = append([]string{"server", "--no-node", "--data-dir", p.data, "--port", program.Port(t)}, args...)
	t.Cleanup(p.kill)
	p.start()
	return p
}

func (p *process) start() {
	p.t.Helper()
	admin := cluster.KubeconfigPath(p.data)
	if err := os.Remove(admin); err != nil && !errors.Is(err, fs.ErrNotExist) { // the program writes it again when the API is ready
		p.t.Fatal(err)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program.Path(p.t), p.args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) {
		if _, err := os.Stat(admin); err == nil {
			return
		}
		select {
		case <-ended:
			p.t.Fatalf("the program ended: %v\n%s", cmd.ProcessState, p.logged())
		default:
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("not ready after a minute\n%s", p.logged())
		}
	}
}

// kill kills the process with SIGKILL.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
	p.cmd = nil
}

// stop ends the process with SIGTERM, and waits until it has exited.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		p.t.Fatalf("has not stopped after half a minute\n%s", p.logged())
	}
	p.cmd = nil
}

func (p *process) logged() []byte {
	p.t.Helper()
	data, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return data
}
