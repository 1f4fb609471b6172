package kubectl

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authz"
	"skiff/skifftest"
)

// countingServer serves no request and counts them.
type countingServer struct {
	*httptest.Server
	mu    sync.Mutex
	asked []*http.Request
}

func startCounting(t *testing.T) *countingServer {
	c := &countingServer{}
	c.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.asked = append(c.asked, r)
		c.mu.Unlock()
		http.Error(w, "nothing here", http.StatusNotFound)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *countingServer) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked)
}

// What is bound to fail fails at once: a server that counts requests sees none.
func TestNoRequestForWhatIsBoundToFail(t *testing.T) {
	server := startCounting(t)
	term := newTerminal(t, "--server="+server.URL, "--insecure-skip-tls-verify", "--token=x")
	for _, line := range []struct{ command, want string }{
		{"run nginx --image='not an image'", `error: invalid image name "not an image": invalid reference format`},
		{"run --image='nginx:' --replicas=3", `error: invalid image name "nginx:": invalid reference format`},
		{"run nginx --image=UPPER/CASE --restart=Never", `error: invalid image name "UPPER/CASE": invalid reference format`},
		{"run nginx --image=nginx@sha256:short --restart=OnFailure", `error: invalid image name "nginx@sha256:short": invalid reference format`},
		{"run nginx --image=nginx --generator=nonsense/v1", `error: generator "nonsense/v1" not found: there are `},
		{"run nginx --image=nginx --restart=Sometimes", `error: invalid restart policy: Sometimes, `},
		{"run nginx --image=nginx --replicas=2 --restart=Never", `error: --restart=Never requires that --replicas=1, found 2`},
		{"get foo_bar", `error: the server doesn't have a resource type "foo_bar"`},
		{"delete 'not a type' x", `error: the server doesn't have a resource type "not a type"`},
		{"describe pods,b@d/x", `error: the server doesn't have a resource type "b@d"`},
	} {
		if _, failure := term.kubectl(words(line.command)...); !strings.HasPrefix(failure, line.want) {
			t.Errorf("kubectl %s: %q, want %q", line.command, failure, line.want)
		}
		if n := server.count(); n != 0 {
			t.Fatalf("kubectl %s: the server saw %d requests, the first for %s", line.command, n, server.asked[0].URL)
		}
	}
	if _, failure := term.kubectl("run", "nginx", "--image=nginx", "--replicas=3"); failure == "" || server.count() == 0 {
		t.Errorf("what can be asked for is not: %q after %d requests", failure, server.count())
	}
	before := server.count()
	if out, failure := term.kubectl("run", "--image=nginx", "--replicas=3", "--dry-run=client"); failure != "" || out != "deployment.apps/nginx created (dry run)\n" || server.count() != before {
		t.Errorf("a dry run asks: %q %q", out, failure)
	}
}

// --username and --password win over what the kubeconfig has, whatever that is.
func TestUsernameOverridesTheKubeconfig(t *testing.T) {
	server := startCounting(t)
	for name, user := range map[string]map[string]any{
		"nothing": {}, "a token": {"token": "secret"}, "another name": {"username": "x", "password": "y"},
		"a plugin": {"exec": map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "command": "false", "interactiveMode": "Never"}},
	} {
		config, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "Config", "current-context": "c",
			"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
			"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": server.URL, "insecure-skip-tls-verify": true}}},
			"users":    []any{map[string]any{"name": "u", "user": user}}})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(file, config, 0o600); err != nil {
			t.Fatal(err)
		}
		term := newTerminal(t, "--kubeconfig="+file, "--username=admin", "--password=open sesame")
		before := server.count()
		term.kubectl("get", "--raw", "/healthz")
		if server.count() == before {
			t.Errorf("with %s in the kubeconfig nothing was asked", name)
			continue
		}
		if user, password, ok := server.asked[before].BasicAuth(); !ok || user != "admin" || password != "open sesame" {
			t.Errorf("with %s in the kubeconfig: %q", name, server.asked[before].Header["Authorization"])
		}
	}
}

// requestLog records the requests of a server.
type requestLog struct {
	mu    sync.Mutex
	paths []string
}

func (s *requestLog) record(r *http.Request, _ *authz.Attributes) {
	if !strings.HasPrefix(r.UserAgent(), "kubectl") && !strings.Contains(r.UserAgent(), ".test") {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths = append(s.paths, r.Method+" "+r.URL.Path)
}

func (s *requestLog) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	paths := s.paths
	s.paths = nil
	return paths
}

// A type that discovery, as it is cached, rules out is not asked for; one that may have come since is, but of discovery only.
func TestUnknownTypes(t *testing.T) {
	var requests requestLog
	s := skifftest.Start(t, skifftest.WithServer(func(o *apiserver.Options) { o.Seen = requests.record }))
	term := newTerminal(t, "--kubeconfig="+s.Kubeconfig())
	term.must("get", "deployments")
	if len(requests.take()) == 0 {
		t.Fatal("requests are not recorded")
	}
	for _, name := range []string{"foos.apps", "foos.batch/x", "deployments.batch"} {
		_, failure := term.kubectl("get", name)
		if got := requests.take(); !strings.Contains(failure, "doesn't have a resource type") || len(got) > 0 {
			t.Errorf("get %s: %q after %q", name, failure, got)
		}
	}
	_, failure := term.kubectl("get", "foos")
	for _, path := range requests.take() {
		if path != "GET /api" && path != "GET /apis" && !strings.HasPrefix(path, "GET /api/v1") && !strings.HasPrefix(path, "GET /apis/") || strings.Contains(path, "foos") {
			t.Errorf("get foos asked for %s", path)
		}
	}
	if failure != `error: the server doesn't have a resource type "foos"` {
		t.Errorf("get foos: %q", failure)
	}
	term.must("get", "deployments.apps,deploy,po,pods.v1.,deployments.v1.apps")
}

// The guide's run on a cluster: what it prints, what it makes, and that it runs.
func TestRun(t *testing.T) {
	s := skifftest.Start(t, skifftest.WithControllers(), skifftest.WithScheduler(), skifftest.WithHollowNodes(3))
	term := newTerminal(t, "--kubeconfig="+s.Kubeconfig())

	if out := term.must(words("run --image=nginx --replicas=3")...); out != "deployment.apps/nginx created\n" {
		t.Errorf("the headline prints %q", out)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		d, err := s.Client().AppsV1().Deployments("default").Get(t.Context(), "nginx", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d.Status.ReadyReplicas == 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("3 pods are not ready: %+v", d.Status)
		}
		time.Sleep(10 * time.Millisecond)
	}
	for command, want := range map[string]string{
		"run plain --image=nginx":                                          "pod/plain created\n",
		"run once --image=busybox --restart=Never -- true":                 "pod/once created\n",
		"run --image=busybox:1.36 --restart-policy=OnFailure":              "job.batch/busybox created\n",
		"run rc --image=nginx --generator=run/v1 --replicas=2":             "replicationcontroller/rc created\n",
		"run nightly --image=busybox --schedule='0 3 * * *'":               "cronjob.batch/nightly created\n",
		"run web --image=nginx --replicas=1 --port=80 --expose":            "service/web created\ndeployment.apps/web created\n",
		"run dry --image=nginx --replicas=2 --dry-run":                     "deployment.apps/dry created (dry run)\n",
		"run dry --image=nginx --replicas=2 --dry-run=server":              "deployment.apps/dry created (server dry run)\n",
		"run named --image=nginx --replicas=2 -o name":                     "deployment.apps/named\n",
		"run four --image=nginx --replicas=4 -o jsonpath={.spec.replicas}": "4",
	} {
		if out := term.must(words(command)...); out != want {
			t.Errorf("kubectl %s prints %q, want %q", command, out, want)
		}
	}
	service, err := s.Client().CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if service.Spec.Selector["run"] != "web" || service.Spec.Ports[0].Port != 80 {
		t.Errorf("the service of web: %+v", service.Spec)
	}
	if _, failure := term.kubectl(words("run --image=nginx --replicas=3")...); failure != `Error from server (AlreadyExists): deployments.apps "nginx" already exists` {
		t.Errorf("a second time: %q", failure)
	}
}

// Flags that shape what is made.
func TestRunFlags(t *testing.T) {
	s := skifftest.Start(t)
	term := newTerminal(t, "--kubeconfig="+s.Kubeconfig())
	term.must("create", "namespace", "shop")
	term.must("run", "web", "--image=nginx", "--replicas=2", "--record", "-n", "shop", `--overrides={"apiVersion":"apps/v1","spec":{"minReadySeconds":7}}`, "--save-config")
	d, err := s.Client().AppsV1().Deployments("shop").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if d.Spec.MinReadySeconds != 7 || *d.Spec.Replicas != 2 {
		t.Errorf("overrides: %+v", d.Spec)
	}
	if cause := d.Annotations["kubernetes.io/change-cause"]; !strings.Contains(cause, "run web --image=nginx --replicas=2") {
		t.Errorf("recorded: %q", cause)
	}
	if !strings.Contains(d.Annotations[corev1.LastAppliedConfigAnnotation], `"minReadySeconds":7`) {
		t.Errorf("the configuration is not saved: %v", d.Annotations)
	}
	if d.ManagedFields[0].Manager != "kubectl-run" {
		t.Errorf("managed by %q", d.ManagedFields[0].Manager)
	}
	out := term.must(words("run x --image=nginx --replicas=2 --dry-run=client -o json -n shop")...)
	var printed appsv1.Deployment
	if err := json.Unmarshal([]byte(out), &printed); err != nil || printed.Kind != "Deployment" || printed.APIVersion != "apps/v1" || printed.Namespace != "shop" {
		t.Errorf("printed %s: %v", out, err)
	}
	if _, failure := term.kubectl(words("run x --image=nginx --replicas=2 --overrides='{'")...); failure == "" {
		t.Error("overrides that are no JSON are taken")
	}
}

// --rm removes what was made, and what was made for it, also when nothing could be attached to.
func TestRunAndRemove(t *testing.T) {
	s := skifftest.Start(t)
	term := newTerminal(t, "--kubeconfig="+s.Kubeconfig())
	out, failure := term.kubectl(words("run web --image=nginx --replicas=1 --port=80 --expose --attach --rm --pod-running-timeout=300ms")...)
	if !strings.Contains(failure, "timed out waiting for the condition") {
		t.Errorf("nothing runs here, and yet: %q", failure)
	}
	for _, want := range []string{`deployment.apps "web" deleted`, `service "web" deleted`} {
		if !strings.Contains(out, want) {
			t.Errorf("%q does not say %s", out, want)
		}
	}
	if _, err := s.Client().CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the service: %v", err)
	}
}
