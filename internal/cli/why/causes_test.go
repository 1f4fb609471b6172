package why

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver"
	"skiff/internal/client"
	"skiff/internal/journey"
	"skiff/skifftest"
)

// fixture is a cluster with a server of webhooks, and a namespace for one situation.
type fixture struct {
	*testing.T
	api       kubernetes.Interface
	client    *client.Client
	recorder  *journey.Recorder
	namespace string
	hooks     *httptest.Server
	closed    string // an address at which nobody listens
	before    func() // called before an object is explained
}

func newFixture(t *testing.T, capacity int) *fixture {
	t.Helper()
	recorder := journey.New(journey.Options{Capacity: capacity})
	s := skifftest.Start(t, skifftest.WithControllers(), skifftest.WithScheduler(), skifftest.WithHollowNodes(1),
		skifftest.WithServer(func(o *apiserver.Options) { o.Journey = recorder }))
	c, err := client.ForKubeconfig(s.Kubeconfig(), "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{T: t, api: s.Client(), client: c, recorder: recorder, hooks: httptest.NewUnstartedServer(http.HandlerFunc(serveHook))}
	f.hooks.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.hooks.StartTLS()
	t.Cleanup(f.hooks.Close)
	gone := httptest.NewServer(nil)
	f.closed = gone.Listener.Addr().String()
	gone.Close()
	return f
}

// serveHook is all webhooks: the path says what one does.
func serveHook(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/convert" {
		convert(w, r)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	switch r.URL.Path {
	case "/deny":
		answer.Allowed, answer.Result = false, &metav1.Status{Message: "images must be signed"}
	case "/patch":
		answer.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
		answer.Patch = []byte(`[{"op":"add","path":"/metadata/annotations","value":{"sidecar":"yes"}}]`)
	}
	review.Request, review.Response = nil, answer
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&review)
}

func (f *fixture) url(path string) string {
	if path == "/closed" {
		return "https://" + f.closed + path
	}
	return f.hooks.URL + path
}

// in returns the fixture for a subtest, with a namespace of its own.
func (f *fixture) in(t *testing.T, namespace string) *fixture {
	c := *f
	c.T, c.namespace = t, namespace
	c.apply(`{apiVersion: v1, kind: Namespace, metadata: {name: ` + namespace + `}}`)
	return &c
}

// apply creates an object from YAML.
func (f *fixture) apply(text string) {
	f.Helper()
	if err := f.try(text); err != nil {
		f.Fatal(err)
	}
}

// groups has the groups of kinds without a namespace that are deleted.
var groups = map[string]string{"APIService": "apiregistration.k8s.io", "MutatingWebhookConfiguration": "admissionregistration.k8s.io"}

func resource(gvk schema.GroupVersionKind) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: strings.ReplaceAll(strings.ToLower(gvk.Kind)+"s", "ys", "ies")}
}

// delete deletes an object of one of the groups.
func (f *fixture) delete(kind, name string) {
	f.Helper()
	gvr := resource(schema.GroupVersionKind{Group: groups[kind], Version: "v1", Kind: kind})
	if err := f.client.Dynamic().Resource(gvr).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		f.Error(err)
	}
}

func (f *fixture) try(text string) error {
	f.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &obj.Object); err != nil {
		f.Fatal(err)
	}
	gvr := resource(obj.GroupVersionKind())
	if obj.GetNamespace() == "" {
		_, err := f.client.Dynamic().Resource(gvr).Create(f.Context(), obj, metav1.CreateOptions{})
		return err
	}
	_, err := f.client.Dynamic().Resource(gvr).Namespace(obj.GetNamespace()).Create(f.Context(), obj, metav1.CreateOptions{})
	return err
}

func (f *fixture) deployment() {
	f.Helper()
	labels := map[string]string{"app": "web"}
	if _, err := f.api.AppsV1().Deployments(f.namespace).Create(f.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}}}}}, metav1.CreateOptions{}); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) pod(name string) error {
	_, err := f.api.CoreV1().Pods(f.namespace).Create(f.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}}}, metav1.CreateOptions{})
	return err
}

// until waits for a condition.
func (f *fixture) until(what string, condition func() bool) {
	f.Helper()
	for deadline := time.Now().Add(30 * time.Second); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.Fatal(what + ": not within 30 s")
		}
	}
}

// refusedPod creates pods until one is refused: webhooks and policies take a moment to be in effect.
func (f *fixture) refusedPod() {
	f.Helper()
	f.until("a pod is refused", func() bool {
		err := f.pod("web")
		if err == nil {
			_ = f.api.CoreV1().Pods(f.namespace).Delete(f.Context(), "web", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
		}
		return err != nil && strings.Contains(err.Error(), f.namespace) || err != nil && strings.Contains(err.Error(), "hook.example.com")
	})
}

// varying are the parts of the text that are different each time.
var varying = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`\d+ times in [0-9.]+ m?s, the last `), ""},
	{regexp.MustCompile(`just now|\d+ s ago`), "AGO"},
	{regexp.MustCompile(`[0-9.]+ m?s\b`), "TOOK"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`web-[a-z0-9]{8,10}\b`), "web-HASH"},
	{regexp.MustCompile(`web-HASH-[a-z0-9]{5}\b`), "web-HASH-NAME"},
	{regexp.MustCompile(`\?timeout=\d+s`), ""},
}

// says waits until an object is explained with a text, contains until that is a part of it.
func (f *fixture) says(object, want string) {
	f.Helper()
	f.explained(object, func(got string) bool { return got == strings.TrimSpace(want) }, want)
}

func (f *fixture) contains(object, part string) {
	f.Helper()
	f.explained(object, func(got string) bool { return strings.Contains(got, part) }, part)
}

func (f *fixture) explained(object string, right func(string) bool, want string) {
	f.Helper()
	kind, name, _ := strings.Cut(object, "/")
	got := ""
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if f.before != nil {
			f.before()
		}
		lines, err := Explain(f.Context(), f.client, kind, f.namespace, name, time.Now())
		got = strings.Join(lines, "\n")
		if err != nil {
			got = err.Error()
		}
		for _, v := range varying {
			got = v.pattern.ReplaceAllString(got, v.by)
		}
		if right(got) {
			return
		}
	}
	f.Errorf("why %s:\n%s\nwant:\n%s", object, got, want)
}

// replicaSet returns the name of the Deployment's ReplicaSet.
func (f *fixture) replicaSet() (name string) {
	f.Helper()
	f.until("there is a ReplicaSet", func() bool {
		list, err := f.api.AppsV1().ReplicaSets(f.namespace).List(f.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			return false
		}
		name = list.Items[0].Name
		return true
	})
	return name
}

// TestCauses makes each situation that why can explain, and compares what it says. Each cause must have one.
func TestCauses(t *testing.T) {
	f := newFixture(t, 0)
	for _, c := range causes {
		name := strings.ReplaceAll(c.name, " ", "-")
		t.Run(name, func(t *testing.T) {
			situation := situations[c.name]
			if situation == nil {
				t.Fatal("has no situation")
			}
			situation(f.in(t, strings.ToLower(name)))
		})
	}
}
