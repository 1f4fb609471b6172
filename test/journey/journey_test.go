package journey

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver"
	"skiff/internal/journey"
	"skiff/internal/scheduler"
	"skiff/skifftest"
)

// start starts a cluster that records journeys.
func start(t testing.TB, opts ...skifftest.Option) *skifftest.Server {
	t.Helper()
	return skifftest.Start(t, append(opts, skifftest.WithServer(func(o *apiserver.Options) { o.Journey = journey.New(journey.Options{}) }))...)
}

func whole(t testing.TB) *skifftest.Server {
	t.Helper()
	return start(t, skifftest.WithControllers(), skifftest.WithScheduler(), skifftest.WithHollowNodes(3))
}

// deploy creates a Deployment of three replicas.
func deploy(t testing.TB, s *skifftest.Server, name string) {
	t.Helper()
	labels := map[string]string{"app": name}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3),
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}}}}}
	if _, err := s.Client().AppsV1().Deployments("default").Create(t.Context(), web, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, api kubernetes.Interface, resource, namespace, name string) (*journey.Tree, error) {
	t.Helper()
	result := api.CoreV1().RESTClient().Get().AbsPath(journey.PathJourney).Param("resource", resource).Param("namespace", namespace).Param("name", name).SetHeader("Accept", "application/json").Do(t.Context())
	if err := result.Error(); err != nil {
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		t.Fatal(err)
	}
	tree := &journey.Tree{}
	if err := json.Unmarshal(body, tree); err != nil {
		t.Fatal(err)
	}
	return tree, nil
}

// eventually reads a tree until problem returns an empty string; otherwise the test fails with the last one.
func eventually(t testing.TB, s *skifftest.Server, resource, name string, problem func(*journey.Tree) string) *journey.Tree {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		tree, err := read(t, s.Client(), resource, "default", name)
		if err != nil {
			t.Fatal(err)
		}
		missing := problem(tree)
		if missing == "" {
			return tree
		}
		if time.Now().After(deadline) {
			var drawn bytes.Buffer
			if err := tree.Draw(&drawn, journey.DrawOptions{}); err != nil {
				t.Fatal(err)
			}
			t.Fatalf("%s\n%s", missing, &drawn)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func each(tree *journey.Tree, visit func(n *journey.Node)) {
	for _, root := range tree.Roots {
		root.Walk(func(n *journey.Node, _ int) { visit(n) })
	}
}

// TestDeployment: a Deployment of three replicas gives one tree, from the request to the last ready pod, with every stage below its cause.
func TestDeployment(t *testing.T) {
	s := whole(t)
	deploy(t, s, "web")
	want := map[string]int{ // the least number of each
		"stage authentication": 1, "stage authorization": 1, "stage admission/NamespaceLifecycle": 1, "stage admission/ServiceAccount": 3, "stage validation": 1,
		"stage store": 1, "stage watch delivery": 1,
		"request create deployments.apps": 1, "request create replicasets.apps": 1, "request create pods": 3, "request create pods/binding": 3, "request update pods/status": 3,
		"work decide deployment-controller": 1, "work decide replicaset-controller": 1, "work schedule kube-scheduler": 3, "work bind kube-scheduler": 3,
		"work kubelet pickup hollow-nodes": 3, "work Ready hollow-nodes": 3,
	}
	tree := eventually(t, s, "deploy", "web", func(tree *journey.Tree) string {
		got := map[string]int{}
		each(tree, func(n *journey.Node) {
			switch n.Kind {
			case journey.KindStage:
				got["stage "+n.Stage]++
			case journey.KindRequest:
				got["request "+n.Stage+" "+n.Resource]++
			case journey.KindWork:
				got["work "+n.Stage+" "+n.Component]++
			}
		})
		for _, what := range slices.Sorted(maps.Keys(want)) {
			if got[what] < want[what] {
				return fmt.Sprintf("%s is there %d times, want %d", what, got[what], want[what])
			}
		}
		return ""
	})
	if len(tree.Roots) != 1 || !tree.Whole || tree.Resource != "deployments.apps" || tree.Name != "web" || tree.Ready.IsZero() {
		t.Errorf("%d roots, whole %v, %s %s, ready %v", len(tree.Roots), tree.Whole, tree.Resource, tree.Name, tree.Ready)
	}
	root := tree.Roots[0]
	if root.Stage != "create" || root.Resource != "deployments.apps" || root.User != "kubernetes-admin" || !root.Critical {
		t.Errorf("it begins with %+v", root)
	}
	critical := map[string]bool{}
	each(tree, func(n *journey.Node) {
		if n.Critical {
			critical[n.Stage] = true
		}
		for _, c := range n.Children {
			if c.Start.Before(n.Start) || c.Until.After(n.Until) {
				t.Errorf("%s of %s is not within %s of %s, its cause", c.Stage, c.Name, n.Stage, n.Name)
			}
		}
		if n.Kind == journey.KindWork && n.Stage == journey.Schedule {
			nodes := 0
			for _, a := range n.Attributes {
				if strings.HasPrefix(a.Key, journey.AboutNode) && strings.HasPrefix(a.Value, "score ") {
					nodes++
				}
			}
			if nodes != 3 || n.Attribute("node") == "" {
				t.Errorf("the scheduler's verdicts: %v", n.Attributes)
			}
		}
	})
	for _, stage := range []string{"create", journey.Decide, journey.Schedule, journey.Bind, journey.Ready, "store"} {
		if !critical[stage] {
			t.Errorf("nothing called %s is on the critical path", stage)
		}
	}
}

// TestPod: the journey of a pod has its causes, without its siblings, and its effects.
func TestPod(t *testing.T) {
	s := whole(t)
	deploy(t, s, "web")
	eventually(t, s, "deployments.apps", "web", func(tree *journey.Tree) string {
		ready := 0
		each(tree, func(n *journey.Node) {
			if n.Kind == journey.KindWork && n.Stage == journey.Ready {
				ready++
			}
		})
		return map[bool]string{false: "three pods are not ready"}[ready == 3]
	})
	pods, err := s.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	name := pods.Items[0].Name
	check := func(tree *journey.Tree) {
		t.Helper()
		created := map[string]bool{}
		each(tree, func(n *journey.Node) {
			if n.Kind == journey.KindRequest && n.Stage == "create" && !strings.Contains(n.Resource, "/") {
				created[n.Resource+" "+n.Name] = true
			}
		})
		if !tree.Whole || !created["deployments.apps web"] || !created["pods "+name] || created["pods "+pods.Items[1].Name] {
			var all strings.Builder
			_ = tree.Draw(&all, journey.DrawOptions{Later: true})
			t.Errorf("whole %v: %v\n%s", tree.Whole, slices.Sorted(maps.Keys(created)), all.String())
		}
	}
	tree, err := read(t, s.Client(), "po", "default", name)
	if err != nil {
		t.Fatal(err)
	}
	check(tree)
	// It is remembered when it is gone.
	if err := s.Client().AppsV1().Deployments("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		if _, err := s.Client().CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("the pod does not go")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if tree, err = read(t, s.Client(), "pod", "default", name); err != nil {
		t.Fatal(err)
	}
	check(tree)
}

// TestUnschedulable: the journey of an unschedulable pod has the reason.
func TestUnschedulable(t *testing.T) {
	s := whole(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "picky"}, Spec: corev1.PodSpec{NodeSelector: map[string]string{"no": "where"}, Containers: []corev1.Container{{Name: "web", Image: "nginx"}}}}
	if _, err := s.Client().CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, s, "pods", "picky", func(tree *journey.Tree) string {
		refusals := 0
		each(tree, func(n *journey.Node) {
			if n.Stage == journey.Schedule && strings.HasPrefix(n.Error, "0/3 nodes are available") {
				for _, a := range n.Attributes {
					if strings.HasPrefix(a.Value, "refused by NodeAffinity: ") {
						refusals++
					}
				}
			}
		})
		return map[bool]string{false: fmt.Sprintf("%d refusals", refusals)}[refusals >= 3]
	})
}

// TestWhoMayRead: a user who may get an object may read its journey, without details of objects that the user may not get.
func TestWhoMayRead(t *testing.T) {
	s := whole(t)
	deploy(t, s, "web")
	eventually(t, s, "deployments", "web", func(tree *journey.Tree) string { return map[bool]string{true: "nothing is ready"}[tree.Ready.IsZero()] })
	as := func(user string) kubernetes.Interface {
		c, err := kubernetes.NewForConfig(s.ConfigFor(user))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if _, err := read(t, as("stranger"), "deployments", "default", "web"); !apierrors.IsForbidden(err) {
		t.Errorf("a stranger: %v", err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "pods"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "pods"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "reader"}}}
	if _, err := s.Client().RbacV1().Roles("default").Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client().RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods, err := s.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var tree *journey.Tree
	deadline := time.Now().Add(10 * time.Second)
	for {
		if tree, err = read(t, as("reader"), "pods", "default", pods.Items[0].Name); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	told := 0
	each(tree, func(n *journey.Node) {
		if n.Kind == journey.KindStage {
			return
		}
		if whole, _, _ := strings.Cut(n.Resource, "/"); whole != "pods" && (n.Name != "" || n.User != "" || len(n.Attributes) > 0 || len(n.Writes) > 0) {
			t.Errorf("the reader learns of %+v", n)
		}
		for _, a := range n.Attributes {
			if strings.HasPrefix(a.Key, journey.AboutNode) {
				t.Errorf("the reader learns of node %s", a.Key)
			}
		}
		told += len(n.Name)
	})
	if told == 0 {
		t.Error("the reader learns nothing of the pod either")
	}
	if _, err := read(t, as("reader"), "deployments", "default", "web"); !apierrors.IsForbidden(err) {
		t.Errorf("the reader of pods about the deployment: %v", err)
	}
}

// TestRefusals: invalid requests, and invalid spans, are refused.
func TestRefusals(t *testing.T) {
	s := start(t)
	for _, c := range []struct{ resource, namespace, name, want string }{
		{"foos", "default", "x", "the server has no resource \"foos\""}, {"", "default", "x", "the server has no resource \"\""},
		{"pods", "default", "", "name is missing"}, {"pods", "", "x", "namespace is missing"}, {"pods", "default", "nobody", "pods \"nobody\" not found"},
		{"tokenreviews", "", "x", "the server has no resource"},
	} {
		if _, err := read(t, s.Client(), c.resource, c.namespace, c.name); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	good, err := json.Marshal(journey.Batch{Spans: []journey.Span{{SpanContext: journey.NewSpanContext(journey.SpanContext{}), Component: "c", Stage: "s", Start: time.Now(), Causes: []journey.Cause{{UID: "u", Revision: 1}}}}})
	if err != nil {
		t.Fatal(err)
	}
	node, stranger := s.ConfigFor("system:node:one", "system:nodes"), s.ConfigFor("stranger")
	for _, c := range []struct {
		who                 *rest.Config
		method, media, path string
		body                []byte
		want                int
	}{
		{node, "POST", "application/json", journey.PathSpans, good, 204},
		{s.Config(), "POST", "application/json", journey.PathSpans, good, 204},
		{stranger, "POST", "application/json", journey.PathSpans, good, 403},
		{node, "GET", "", journey.PathSpans, nil, 403},
		{s.Config(), "GET", "", journey.PathSpans, nil, 405},
		{s.Config(), "POST", "application/json", journey.PathJourney, good, 405},
		{node, "POST", "text/plain", journey.PathSpans, good, 415},
		{node, "POST", "application/json", journey.PathSpans, []byte("{"), 400},
		{node, "POST", "application/json", journey.PathSpans, []byte(`{"Spans":[{}]}`), 400},
		{node, "POST", "application/json", journey.PathSpans, bytes.Repeat([]byte(" "), journey.MaxBatchSize+1), 413},
	} {
		transport, err := rest.HTTPClientFor(c.who)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), c.method, s.URL()+c.path, bytes.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", c.media)
		answer, err := transport.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != c.want {
			t.Errorf("%s %s of %d bytes %s as %s: %d, want %d", c.method, c.path, len(c.body), c.media, c.who.UserAgent, answer.StatusCode, c.want)
		}
	}
}

// TestOtherProcess: a scheduler in another process sends its spans to the server over the network; the tree is complete.
func TestOtherProcess(t *testing.T) {
	s := start(t, skifftest.WithControllers(), skifftest.WithHollowNodes(3))
	config, err := scheduler.DefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, err := scheduler.New(scheduler.Options{Client: s.Remote("kube-scheduler", "system:kube-scheduler"), Config: config, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := elsewhere.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer stop()
	deploy(t, s, "web")
	eventually(t, s, "deploy", "web", func(tree *journey.Tree) string {
		scheduled, bound := 0, 0
		each(tree, func(n *journey.Node) {
			if n.Kind == journey.KindWork && n.Stage == journey.Schedule && n.User == "system:kube-scheduler" {
				for _, c := range n.Children {
					if c.Stage == journey.Bind && len(c.Children) == 1 && c.Children[0].Resource == "pods/binding" {
						bound++
					}
				}
				scheduled++
			}
		})
		if len(tree.Roots) != 1 || scheduled != 3 || bound != 3 {
			return fmt.Sprintf("%d roots, %d verdicts, %d bindings below them", len(tree.Roots), scheduled, bound)
		}
		return ""
	})
}
