package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver"
	"skiff/internal/journey"
	"skiff/skifftest"
)

// page is what a command has written so far.
type page struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *page) has(parts ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range parts {
		if !strings.Contains(p.text.String(), part) {
			return false
		}
	}
	return true
}

// A journey is watched from before there is anything to see, then drawn, printed and explained.
func TestJourneyCommands(t *testing.T) {
	s := skifftest.Start(t, skifftest.WithControllers(), skifftest.WithScheduler(), skifftest.WithHollowNodes(2),
		skifftest.WithServer(func(o *apiserver.Options) { o.Journey = journey.New(journey.Options{}) }))
	watched := &page{}
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		cmd := journeyCommand()
		cmd.SetArgs([]string{"deployment/web", "-w", "--kubeconfig", s.Kubeconfig()})
		cmd.SetOut(watched)
		if err := cmd.ExecuteContext(ctx); err != nil {
			t.Error(err)
		}
	})
	defer watching.Wait()
	defer stop()
	wait := func(what string, parts ...string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !watched.has(parts...); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s is not shown:\n%s", what, &watched.text)
			}
		}
	}
	wait("that there is nothing", `waiting: deployments.apps "web" not found`)
	labels := map[string]string{"app": "web"}
	if _, err := s.Client().AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait("the rollout", "deployment.apps/web in default: 2 pods ready after ", "authentication", "create Pod × 2", "(chosen): score ", "longest on the critical path")

	enter := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		cmd := journeyCommand()
		if args[0] == "why" {
			cmd = whyCommand()
		}
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append(args[1:], "--kubeconfig", s.Kubeconfig()))
		cmd.SetOut(&out)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			return "error: " + err.Error()
		}
		return out.String()
	}
	var tree journey.Tree
	if err := json.Unmarshal([]byte(enter("journey", "deploy", "web", "-o", "json")), &tree); err != nil || len(tree.Roots) != 1 || tree.Ready.IsZero() {
		t.Errorf("as JSON: %v, %d roots", err, len(tree.Roots))
	}
	pods, err := s.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	why := enter("why", "pod/"+pods.Items[0].Name)
	for _, part := range []string{" in default is ready.", "by replicaset-controller, because of replicasets.apps web-", "because of deployments.apps web, which apitest as kubernetes-admin made.", "by choice of the scheduler (2 of 2 nodes):"} {
		if !strings.Contains(why, part) {
			t.Errorf("why does not say %q:\n%s", part, why)
		}
	}
	for _, c := range []struct{ want, line string }{
		{`error: deployments.apps "no" not found`, "journey deployment/no"},
		{`error: the server has no resource "foo"`, "journey foo/web"},
		{"error: web: want KIND/NAME, such as deployment/nginx", "journey web"},
		{"error: -o yaml: the only other format is json", "journey deploy/web -o yaml"},
		{"deployment.apps/web in default: nothing is known that refused it, failed it or keeps it waiting; skiff journey deploy/web shows what happened.\n", "why deploy/web"},
		{`error: pods "no" not found`, "why pod/no"},
	} {
		if got := enter(strings.Fields(c.line)...); got != c.want {
			t.Errorf("%s: %q, want %q", c.line, got, c.want)
		}
	}
}

func TestKindAndName(t *testing.T) {
	for _, c := range []struct {
		args       []string
		kind, name string
	}{{[]string{"pod/x"}, "pod", "x"}, {[]string{"deploy", "x"}, "deploy", "x"}} {
		if kind, name, err := kindAndName(c.args); err != nil || kind != c.kind || name != c.name {
			t.Errorf("%v: %s %s %v", c.args, kind, name, err)
		}
	}
	for _, bad := range [][]string{{"pod"}, {"pod/"}, {"/x"}, {"pod/x/y"}, {"", "x"}} {
		if _, _, err := kindAndName(bad); err == nil {
			t.Errorf("%v passes", bad)
		}
	}
}
