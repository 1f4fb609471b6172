package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"skiff/test/program"
)

func TestMain(m *testing.M) { program.Main(m) }

// user is somebody at a command line, with a home and a data directory.
type user struct {
	t          *testing.T
	home, data string
	port       string
}

func newUser(t *testing.T) *user {
	u := &user{t: t, home: t.TempDir(), data: filepath.Join(t.TempDir(), "data"), port: program.Port(t)}
	t.Cleanup(func() { program.Run(background{t}, u.home, "down", "--purge", "--data-dir", u.data) })
	return u
}

// background is a test whose context has not ended yet, for cleaning up.
type background struct{ testing.TB }

func (background) Context() context.Context { return context.Background() }

// does runs a command that must succeed and say so.
func (u *user) does(says string, args ...string) string {
	u.t.Helper()
	code, out, errs := u.run(args...)
	if code != 0 || !strings.Contains(out, says) {
		u.t.Fatalf("%v ended with %d\n%s%s", args, code, out, errs)
	}
	return out
}

// fails runs a command that must fail and say why, in one line.
func (u *user) fails(why string, args ...string) {
	u.t.Helper()
	code, out, errs := u.run(args...)
	if code == 0 || !strings.Contains(errs, why) || !strings.HasPrefix(errs, "skiff: ") || strings.Count(errs, "\n") != 1 || strings.Contains(errs, "goroutine") {
		u.t.Errorf("%v ended with %d, want %q\n%s%s", args, code, why, out, errs)
	}
}

func (u *user) run(args ...string) (int, string, string) {
	u.t.Helper()
	return program.Run(u.t, u.home, append(args, "--data-dir", u.data)...)
}

func (u *user) up(flags ...string) string {
	u.t.Helper()
	return u.does("cluster skiff is", append([]string{"up", "--no-node", "--port", u.port}, flags...)...)
}

func (u *user) maps() (list func() string, create func(string)) {
	u.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(u.data, "admin.kubeconfig"))
	if err != nil {
		u.t.Fatal(err)
	}
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	return func() string {
			u.t.Helper()
			all, err := maps.List(u.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"}) // every namespace has that one
			if err != nil {
				u.t.Fatal(err)
			}
			var names []string
			for _, cm := range all.Items {
				names = append(names, cm.Name)
			}
			return strings.Join(names, " ")
		}, func(name string) {
			u.t.Helper()
			if _, err := maps.Create(u.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				u.t.Fatal(err)
			}
		}
}

func (u *user) config() *api.Config {
	u.t.Helper()
	c, err := clientcmd.LoadFromFile(filepath.Join(u.home, ".kube", "config"))
	if err != nil {
		u.t.Fatal(err)
	}
	return c
}

func (u *user) pid() int {
	u.t.Helper()
	m := regexp.MustCompile(`process +(\d+)`).FindStringSubmatch(u.does("is running", "status"))
	if m == nil {
		u.t.Fatal("the status tells no process")
	}
	pid, err := strconv.Atoi(m[1])
	if err != nil {
		u.t.Fatal(err)
	}
	return pid
}

// A cluster's whole life.
func TestLife(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.does("cluster skiff is not running", "status")
	u.does("cluster skiff was not running", "stop")
	if out := u.up(); !strings.Contains(out, "is up after") || !strings.Contains(out, "kubectl --kubeconfig "+u.data) {
		t.Errorf("up said %s", out)
	}
	list, create := u.maps()
	create("mine")
	if out := u.up(); !strings.Contains(out, "cluster skiff is already up") {
		t.Errorf("a second up said %s", out)
	}
	status := u.does("is running", "status")
	for _, want := range []string{"https://127.0.0.1:" + u.port + ", ready", "v1.37.1+skiff", "MB resident", "MB in use, "} {
		if !strings.Contains(status, want) {
			t.Errorf("the status does not say %q: %s", want, status)
		}
	}
	u.does("cluster skiff is stopped", "stop")
	u.does("cluster skiff is not running", "status")
	u.up()
	if got := list(); got != "mine" {
		t.Errorf("after a stop there is %q", got)
	}
	pid := u.pid()
	u.does("cluster skiff is down", "down")
	gone(t, pid)
	u.up()
	if got := list(); got != "mine" {
		t.Errorf("after down there is %q", got)
	}
	u.does(u.data+" is removed", "down", "--purge")
	if _, err := os.Stat(u.data); !os.IsNotExist(err) {
		t.Errorf("%s is still there", u.data)
	}
	u.does("is removed", "down", "--purge") // nothing left to do
}

// gone waits for a process to end.
func gone(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat, []byte(") Z ")) { // nobody has asked how it ended
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

// Several who start the same cluster at once get one, and all wait until it is up.
func TestUpTogether(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	var wg sync.WaitGroup
	said := make([]string, 4)
	for i := range said {
		wg.Go(func() {
			code, out, errs := u.run("up", "--no-node", "--port", u.port, "--merge-kubeconfig")
			if code != 0 {
				t.Errorf("up ended with %d\n%s%s", code, out, errs)
			}
			said[i] = out
		})
	}
	wg.Wait()
	if got := strings.Count(strings.Join(said, ""), "is up after"); got != 1 {
		t.Errorf("%d started it: %q", got, said)
	}
	list, _ := u.maps()
	list()
}

func TestKillAndResume(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.up()
	list, create := u.maps()
	create("mine")
	if err := syscall.Kill(u.pid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, out, _ := u.run("status"); strings.Contains(out, "is not running") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a killed cluster is said to run")
		}
	}
	if out := u.up(); !strings.Contains(out, "is up after") {
		t.Errorf("up said %s", out)
	}
	if got := list(); got != "mine" {
		t.Errorf("after a kill there is %q", got)
	}
}

// A process that is told to stop ends its watches at once.
func TestStopWithWatches(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.up()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(u.data, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	u.does("is stopped", "stop")
	for range w.ResultChan() {
	}
	if took := time.Since(began); took > 8*time.Second { // requests under way would have ten
		t.Errorf("took %v", took)
	}
}

func TestUserKubeconfig(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	theirs := api.NewConfig()
	theirs.Clusters["work"] = &api.Cluster{Server: "https://work.example"}
	theirs.AuthInfos["work"] = &api.AuthInfo{Token: "secret"}
	theirs.Contexts["work"] = &api.Context{Cluster: "work", AuthInfo: "work", Namespace: "team"}
	theirs.CurrentContext = "work"
	file := filepath.Join(u.home, ".kube", "config")
	if err := clientcmd.WriteToFile(*theirs, file); err != nil {
		t.Fatal(err)
	}
	u.up()
	if got := u.config().CurrentContext; got != "work" {
		t.Errorf("the current context is %s though nobody asked", got)
	}
	u.up("--merge-kubeconfig")
	c := u.config()
	if c.CurrentContext != "work" || c.Clusters["skiff"].Server != "https://127.0.0.1:"+u.port || c.Contexts["work"].Namespace != "team" || c.AuthInfos["work"].Token != "secret" {
		t.Errorf("merged: %+v", c)
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, &clientcmd.ConfigOverrides{CurrentContext: "skiff"}).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubernetes.NewForConfigOrDie(config).Discovery().ServerVersion(); err != nil {
		t.Errorf("the merged context leads nowhere: %v", err)
	}
	u.does("is down", "down", "--purge")
	c = u.config()
	if c.Clusters["skiff"] != nil || c.Contexts["skiff"] != nil || c.AuthInfos["skiff"] != nil || c.Clusters["work"] == nil || c.Contexts["work"] == nil || c.AuthInfos["work"] == nil {
		t.Errorf("after a purge: %+v", c)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	// A context of the same name that leads elsewhere is somebody else's.
	theirs.Clusters["skiff"] = &api.Cluster{Server: "https://127.0.0.1:1"}
	theirs.Contexts["skiff"] = &api.Context{Cluster: "skiff", AuthInfo: "work"}
	if err := clientcmd.WriteToFile(*theirs, file); err != nil {
		t.Fatal(err)
	}
	u.up()
	u.does("is down", "down", "--purge")
	if c = u.config(); c.Clusters["skiff"] == nil || c.Contexts["skiff"] == nil {
		t.Errorf("another's context was removed: %+v", c)
	}
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	file := filepath.Join(t.TempDir(), "snapshot")
	u.fails("holds no cluster", "snapshot", "save", file)
	u.up()
	list, create := u.maps()
	create("before")
	u.fails("stop it first", "snapshot", "save", file)
	u.does("is stopped", "stop")
	u.does("saved", "snapshot", "save", file)
	u.up()
	create("after")
	if got := list(); got != "after before" {
		t.Errorf("there is %q", got)
	}
	u.fails("stop it first", "snapshot", "restore", file)
	u.does("is stopped", "stop")
	if out := u.does("restored", "snapshot", "restore", file); !strings.Contains(out, "the state before is in "+u.data) {
		t.Errorf("restore said %s", out)
	}
	u.up()
	if got := list(); got != "before" {
		t.Errorf("after the restore there is %q", got)
	}
	u.does("is stopped", "stop")
	if err := os.WriteFile(file, []byte("no snapshot"), 0o600); err != nil {
		t.Fatal(err)
	}
	u.fails("", "snapshot", "restore", file)
	u.fails("", "snapshot", "restore", file+".none")
	u.up() // what there was is untouched
	if got := list(); got != "before" {
		t.Errorf("after a failed restore there is %q", got)
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	l, err := net.Listen("tcp", "127.0.0.1:"+u.port)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u.fails("address already in use", "up", "--no-node", "--port", u.port)
	u.does("is not running", "status")
	l.Close()
	u.up()
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	for _, c := range []struct {
		why  string
		args []string
	}{
		{"--hostname-override gives another name", []string{"up", "--hostname-override", "Not a name"}},
		{"--node-ip", []string{"up", "--node-ip", "here"}},
		{"--container-runtime-endpoint", []string{"up", "--container-runtime-endpoint", "/run/it.sock"}},
		{"\"Magic\" is not a valid mode", []string{"up", "--no-node", "--authorization-mode", "Magic"}},
		{"plugin \"Magic\" is unknown", []string{"up", "--no-node", "--enable-admission-plugins", "Magic"}},
		{"tls-san", []string{"up", "--no-node", "--tls-san", "not a name"}},
		{"is not an IP address", []string{"up", "--no-node", "--bind-address", "here"}},
		{"is not an IP address", []string{"up", "--no-node", "--advertise-address", "there"}},
		{"not between 1 and 65535", []string{"up", "--no-node", "--port", "99999"}},
		{"not between 1 and 65535", []string{"up", "--no-node", "--port", "-1"}},
		{"invalid argument", []string{"up", "--no-node", "--port", "many"}},
		{"go together", []string{"up", "--no-node", "--tls-cert-file", "x"}},
		{"--storage-media-type", []string{"up", "--no-node", "--storage-media-type", "text/plain"}},
		{"--etcd-prefix", []string{"up", "--no-node", "--etcd-prefix", "registry"}},
		{"--etcd-prefix", []string{"up", "--no-node", "--etcd-prefix", "/"}},
		{"--service-cluster-ip-range", []string{"up", "--no-node", "--service-cluster-ip-range", "10.0.0.0"}},
		{"many", []string{"up", "--no-node", "--service-node-port-range", "many", "--port", u.port}},
		{"unknown flag", []string{"up", "--no-nodes"}},
		{"unknown command", []string{"up", "now"}},
		{"accepts 1 arg", []string{"snapshot", "save"}},
		{"", []string{"up", "--no-node", "--tls-cert-file", "/none", "--tls-private-key-file", "/none", "--port", u.port}},
		{"", []string{"up", "--no-node", "--etcd-listen", "nonsense", "--port", u.port}},
		{"is not an IP address", []string{"apiserver", "--bind-address", "here"}},
		{"expected comma separated certificate and key file paths", []string{"apiserver", "--tls-sni-cert-key", "foo.crt"}},
		{"--min-request-timeout can not be negative value", []string{"apiserver", "--min-request-timeout", "-1"}},
		{"does not pin to start/end of host", []string{"up", "--no-node", "--cors-allowed-origins", "example.com"}},
		{"not between 1 and 65535", []string{"server", "--no-node", "--port", "99999"}},
	} {
		u.fails(c.why, c.args...)
	}
	u.does("is not running", "status")
}

// A purged cluster leaves nothing to the next.
func TestPurge(t *testing.T) {
	t.Parallel()
	u := newUser(t)
	u.up()
	_, create := u.maps()
	create("mine")
	theirs := filepath.Join(u.data, "thesis.txt")
	if err := os.WriteFile(theirs, []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	u.fails("also holds what is not skiff's", "down", "--purge")
	if left, err := os.ReadDir(u.data); err != nil || len(left) != 1 || left[0].Name() != "thesis.txt" {
		t.Errorf("left: %v, %v", left, err)
	}
	u.up()
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(u.data, "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default").Get(t.Context(), "mine", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after a purge: %v", err)
	}
	if err := os.Remove(theirs); err != nil {
		t.Fatal(err)
	}
}
