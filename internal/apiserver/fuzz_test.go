package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver/codec"
)

// fuzzed are the resources that are fuzzed, with an object of each.
func fuzzed() []struct {
	path string
	obj  runtime.Object
} {
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i", Args: []string{"a"},
			Ports: []corev1.ContainerPort{{ContainerPort: 80}}, Env: []corev1.EnvVar{{Name: "E", Value: "v"}}}}}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	deployment := template.DeepCopy()
	deployment.Spec.RestartPolicy = corev1.RestartPolicyAlways
	meta := metav1.ObjectMeta{Name: "x", Namespace: "default"}
	return []struct {
		path string
		obj  runtime.Object
	}{
		{inNamespace("configmaps"), &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta, Data: map[string]string{"k": "v"}, BinaryData: map[string][]byte{"b": {0, 255}}}},
		{inNamespace("secrets"), &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta, StringData: map[string]string{"k": "v"}}},
		{inNamespace("pods"), &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta, Spec: template.Spec}},
		{inNamespace("services"), &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}}}}},
		{"/apis/apps/v1/namespaces/default/deployments", &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: *deployment}}},
		{"/apis/batch/v1/namespaces/default/jobs", &batchv1.Job{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"}, ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template}}},
	}
}

// encoded is an object in one of the encodings.
func encoded(t testing.TB, obj runtime.Object, media string) []byte {
	t.Helper()
	for _, info := range scheme.Codecs.SupportedMediaTypes() {
		if info.MediaType == media {
			b, err := runtime.Encode(info.Serializer, obj)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
	t.Fatalf("no %s", media)
	return nil
}

// storyBodies are the bodies and patches of the stories: hard ones, by choice.
func storyBodies(t testing.TB) (bodies []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(data), "\n----\n") {
			lines := strings.Split(block, "\n")
			if last := lines[len(lines)-1]; len(last) > 1 && strings.ContainsAny(last[:1], "{[") && !strings.Contains(last, "${") {
				bodies = append(bodies, last)
			}
		}
	}
	return bodies
}

// proper checks what must hold of every answer: a client's mistake is answered as such, with a Status, and never with a panic.
func proper(t testing.TB, a answer, mayFail bool) {
	t.Helper()
	if bytes.Contains(a.Body, []byte("caused apiserver to panic")) {
		t.Fatalf("panicked: %s", a.Body)
	}
	if a.Code < 400 {
		return
	}
	if a.Code >= 500 && !mayFail {
		t.Fatalf("answered %d: %s", a.Code, a.Body)
	}
	if status := into[metav1.Status](a); status.Kind != "Status" || int(status.Code) != a.Code || status.Status != metav1.StatusFailure || status.Message == "" {
		t.Fatalf("answered %d: %s", a.Code, a.Body)
	}
}

var encodings = []string{codec.JSONType, codec.YAMLType, codec.ProtobufType}

// FuzzDecode sends any body in any encoding to be created. What is accepted must be accepted again in the form it was answered in.
func FuzzDecode(f *testing.F) {
	kinds := fuzzed()
	for i, k := range kinds {
		for j, media := range encodings {
			f.Add(encoded(f, k.obj, media), uint8(i), uint8(j), uint8(0))
		}
	}
	for n, body := range storyBodies(f) {
		f.Add([]byte(body), uint8(n%len(kinds)), uint8(0), uint8(n%3))
		f.Add([]byte(body), uint8(n%len(kinds)), uint8(1), uint8(n%3))
	}
	s := start(f)
	strictness := []string{"", "Strict", "Ignore"}
	f.Fuzz(func(t *testing.T, body []byte, kind, media, strict uint8) {
		s := &server{t, s.api, s.store}
		k := kinds[int(kind)%len(kinds)]
		query := "?dryRun=All&fieldValidation=" + strictness[int(strict)%3]
		got := s.send("POST", k.path+query, body, "Content-Type", encodings[int(media)%3])
		proper(t, got, bytes.Contains(got.Body, []byte("resourceVersion should not be set on objects to be created"))) // upstream's answer
		if got.Code != http.StatusCreated || strings.HasSuffix(k.path, "/jobs") {                                      // a job is made for its uid
			return
		}
		obj := into[map[string]any](got)
		delete((*obj)["metadata"].(map[string]any), "resourceVersion")
		again := s.send("POST", k.path+query, *obj)
		if again.Code != http.StatusCreated {
			t.Fatalf("accepted once: %s\nbut not again: %s", got.Body, again.Body)
		}
	})
}

// FuzzPatch applies any patch of any kind to existing objects.
func FuzzPatch(f *testing.F) {
	patchTypes := []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType}
	kinds := fuzzed()
	for n, body := range storyBodies(f) {
		for p := range patchTypes {
			f.Add([]byte(body), uint8(n%len(kinds)), uint8(p), uint8(n%6))
		}
	}
	for i, k := range kinds {
		asYAML, err := yaml.JSONToYAML(encoded(f, k.obj, codec.JSONType))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(asYAML, uint8(i), uint8(3), uint8(0))
	}
	s := start(f)
	for _, k := range kinds {
		s.send("POST", k.path, encoded(f, k.obj, codec.JSONType)).ok()
	}
	strictness := []string{"", "Strict", "Ignore"}
	f.Fuzz(func(t *testing.T, body []byte, kind, patchType, variant uint8) {
		s := &server{t, s.api, s.store}
		p := patchTypes[int(patchType)%len(patchTypes)]
		query := "?dryRun=All&fieldManager=fuzz&fieldValidation=" + strictness[int(variant)%3]
		path := kinds[int(kind)%len(kinds)].path + "/x"
		if variant%2 == 1 && !strings.Contains(path, "configmaps") && !strings.Contains(path, "secrets") {
			path += "/status"
		}
		// Upstream, too, answers 500 to patches that do not fit the schema.
		mayFail := p == types.ApplyYAMLPatchType || p == types.StrategicMergePatchType
		proper(t, s.send("PATCH", path+query, body, "Content-Type", string(p)), mayFail)
	})
}

// FuzzRoute sends any request line.
func FuzzRoute(f *testing.F) {
	for _, path := range []string{"/", "/api", "/apis/apps/v1", inNamespace("pods"), inNamespace("pods", "x", "status"), inNamespace("pods", "x", "log"), "/api/v1/watch/pods", "/healthz/ping", "/openapi/v3",
		"/apis/apps/v1/namespaces/default/deployments/x/scale", "/api/v1/namespaces//pods", "/api/v1/nodes/n/proxy/a/b", "//", "/api/v1/namespaces/default/pods/../../../x", "/version/"} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"} {
			f.Add(method, path, "limit=1&continue=x&watch=1&timeoutSeconds=1", "application/json", "*/*", "{}")
			f.Add(method, path, "resourceVersion=1&resourceVersionMatch=Exact&dryRun=All", "application/merge-patch+json", "application/json;as=Table;g=meta.k8s.io;v=v1", "")
		}
	}
	f.Add("DELETE", inNamespace("configmaps"), "labelSelector=a&fieldSelector=b&gracePeriodSeconds=-1&propagationPolicy=x&orphanDependents=2", "", "", `{"gracePeriodSeconds":0}`)
	s := start(f)
	f.Fuzz(func(t *testing.T, method, path, query, contentType, accept, body string) {
		u := &url.URL{Path: path, RawQuery: query}
		if method == "" || strings.ContainsAny(method, " \t\r\n") || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "/debug/") {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		s := &server{t, s.api, s.store}
		r := httptest.NewRequestWithContext(ctx, "GET", "/", strings.NewReader(body))
		r.Method, r.URL, r.RequestURI = method, u, u.RequestURI()
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("Accept", accept)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		a := answer{t, w.Code, w.Header(), w.Body.Bytes()}
		if bytes.Contains(a.Body, []byte("caused apiserver to panic")) {
			t.Fatalf("panicked: %s", a.Body)
		}
		if w.Code < 200 || w.Code > 599 {
			t.Fatalf("answered %d", w.Code)
		}
		if w.Code >= 400 && strings.HasPrefix(path, "/api/v1/") && w.Header().Get("Content-Type") == codec.JSONType && method != "HEAD" {
			if !json.Valid(a.Body) {
				t.Fatalf("answered %d: %s", w.Code, a.Body)
			}
			proper(t, a, ctx.Err() != nil || w.Code == http.StatusServiceUnavailable)
		}
	})
}
