package differential

import (
	"errors"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/cluster"
	"skiff/test/program"
)

var actual = flag.String("actual", "", "directory to write what was printed to, as scripts, for diff -u")

// TestReplay runs every recorded script against skiff and expects upstream's answers.
func TestReplay(t *testing.T) {
	server := Server{Kubeconfig: startSkiff(t), Kubectl: kubectl(t), CacheDir: t.TempDir()}
	t.Run("scripts", func(t *testing.T) { // returns when all have ended, before skiff is stopped
		for _, script := range load(t, "testdata/*.script") {
			t.Run(script.Name, func(t *testing.T) {
				t.Parallel()
				replay(t, server, script)
			})
		}
	})
}

// TestCluster runs the scripts that need controllers, a scheduler and nodes, each against its own skiff.
func TestCluster(t *testing.T) {
	cache := t.TempDir()
	var running sync.WaitGroup
	turns := make(chan struct{}, 4) // more than there are cores: scripts wait more than they work
	for _, script := range load(t, "testdata/cluster/*.script") {
		running.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			t.Run(script.Name, func(t *testing.T) {
				replay(t, Server{Kubeconfig: startCluster(t), Kubectl: kubectl(t), CacheDir: cache}, script)
			})
		})
	}
	running.Wait()
}

func load(t *testing.T, pattern string) (scripts []*Script) {
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		script, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, script)
	}
	return scripts
}

func replay(t *testing.T, server Server, want *Script) {
	got, err := server.Run(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range want.Steps {
		if printed := got.Steps[i].Output; printed != step.Output {
			t.Errorf("%s:%d\n%s$ %s\n(-upstream +skiff):\n%s", want.Path, step.Line, step.Comment, step.Command,
				cmp.Diff(strings.Split(step.Output, "\n"), strings.Split(printed, "\n")))
		}
	}
	if *actual != "" {
		file := filepath.Join(*actual, strings.TrimPrefix(want.Path, "testdata/"))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(got.Format()), 0o644)); err != nil {
			t.Error(err)
		}
	}
}

// TestPlugins runs the scripts that need admission plugins which are off by default.
func TestPlugins(t *testing.T) {
	file, policies, err := StartPolicyServer(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(policies.Close)
	server := Server{Kubeconfig: startSkiff(t, func(c *cluster.Config) {
		c.EnableAdmission, c.AdmissionConfigFile = strings.Split(Plugins, ","), file
	}), Kubectl: kubectl(t), CacheDir: t.TempDir()}
	t.Run("scripts", func(t *testing.T) {
		for _, script := range load(t, "testdata/plugins/*.script") {
			t.Run(script.Name, func(t *testing.T) {
				t.Parallel()
				replay(t, server, script)
			})
		}
	})
}

// startSkiff starts a fresh API server and returns its kubeconfig.
func startSkiff(t *testing.T, change ...func(*cluster.Config)) string {
	if kubeconfig := os.Getenv("SKIFF_DIFFERENTIAL_KUBECONFIG"); kubeconfig != "" {
		return kubeconfig
	}
	dir := t.TempDir()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte(`admin,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	authentication := cluster.DefaultAuthentication()
	authentication.TokenAuthFile = tokens
	config := cluster.Config{Name: "differential", DataDir: dir, Port: freePort(t), Authentication: authentication,
		Disable:          []string{cluster.PartScheduler, cluster.PartMetrics},                                                                                                // upstream has the second by an add-on
		DisableAdmission: strings.Split("ServiceAccount,Priority,DefaultTolerationSeconds,StorageObjectInUseProtection,TaintNodesByCondition,LimitRanger,ResourceQuota", ",")} // as in upstream.sh
	for _, c := range change {
		c(&config)
	}
	server, err := cluster.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	// The administrator comes with a token, as in upstream.sh: what is recorded shows how somebody was recognized.
	users, err := clientcmd.LoadFromFile(cluster.KubeconfigPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range users.AuthInfos {
		*user = api.AuthInfo{Token: "admin"}
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*users, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// startCluster starts skiff as users do, with three hollow nodes, and returns its kubeconfig.
func startCluster(t *testing.T) string {
	if kubeconfig := os.Getenv("SKIFF_DIFFERENTIAL_KUBECONFIG"); kubeconfig != "" {
		return kubeconfig
	}
	home, dir := t.TempDir(), t.TempDir()
	t.Cleanup(func() {
		down := exec.Command(program.Path(t), "down", "--purge", "--name", "differential", "--data-dir", dir)
		down.Env = append(os.Environ(), "HOME="+home, "KUBECONFIG=")
		if out, err := down.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	if code, out, errs := program.Run(t, home, "up", "--no-node", "--hollow-nodes", "3", "--name", "differential", "--data-dir", dir, "--port", program.Port(t)); code != 0 {
		t.Fatalf("skiff up: %d\n%s%s", code, out, errs)
	}
	return cluster.KubeconfigPath(dir)
}

func TestMain(m *testing.M) { program.Main(m) }

func freePort(t *testing.T) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func kubectl(t *testing.T) string {
	path := os.Getenv("SKIFF_DIFFERENTIAL_KUBECTL")
	if path == "" {
		path = "../../bin/kubectl"
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("kubectl: %v (make builds it; SKIFF_DIFFERENTIAL_KUBECTL names another)", err)
	}
	return path
}
