package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/codec"
	"skiff/internal/journey"
	"skiff/internal/store/memory"
)

const (
	protobuf = codec.ProtobufType
	table    = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

func start(b *testing.B, j *journey.Recorder) *apiserver.Server {
	store := memory.New(memory.Options{})
	server, err := apiserver.New(apiserver.Options{Store: store, Journey: j, DisableAdmission: []string{"ServiceAccount"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { server.Close(); store.Close() })
	if err := server.WaitReady(context.Background()); err != nil {
		b.Fatal(err)
	}
	return server
}

func do(b *testing.B, server *apiserver.Server, method, path, accept string, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	r.Header.Set("Accept", accept)
	r.Header.Set("Content-Type", protobuf)
	r.Header.Set("User-Agent", "bench/1.0")
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r.WithContext(authn.InProcess(r.Context(), authn.Admin())))
	if w.Code >= 300 {
		b.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w
}

func pod(name string) []byte {
	no := false
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "bench", "tier": "web"}, Annotations: map[string]string{"note": strings.Repeat("a realistic annotation ", 10)}},
		Spec: corev1.PodSpec{SchedulerName: "nobody", AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1.0",
			Ports: []corev1.ContainerPort{{ContainerPort: 8080}}, Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")}}}}},
	}
	message, err := p.Marshal()
	if err != nil {
		panic(err)
	}
	return codec.AppendEnvelope(nil, codec.EnvelopeHead(corev1.SchemeGroupVersion.WithKind("Pod")), message)
}

const pods = "/api/v1/namespaces/default/pods"

func BenchmarkCreatePod(b *testing.B) {
	for name, recorder := range map[string]*journey.Recorder{"with journey": journey.New(journey.Options{}), "without": nil} {
		b.Run(name, func(b *testing.B) {
			server := start(b, recorder)
			var n atomic.Int64
			b.ReportAllocs()
			for b.Loop() {
				do(b, server, http.MethodPost, pods, protobuf, pod(fmt.Sprintf("p-%d", n.Add(1))))
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	server := start(b, nil)
	for i := range 3000 {
		do(b, server, http.MethodPost, pods, protobuf, pod(fmt.Sprintf("p-%d", i)))
	}
	for _, c := range []struct{ name, path, accept string }{
		{"get protobuf", pods + "/p-1", protobuf}, {"get JSON", pods + "/p-1", codec.JSONType},
		{"list protobuf", pods, protobuf}, {"list JSON", pods, codec.JSONType}, {"list table", pods, table},
		{"list selected", pods + "?labelSelector=app%3Dnone", protobuf},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do(b, server, http.MethodGet, c.path, c.accept, nil)
			}
		})
	}
}

func BenchmarkPatchPod(b *testing.B) {
	server := start(b, nil)
	do(b, server, http.MethodPost, pods, protobuf, pod("p"))
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		r := httptest.NewRequest(http.MethodPatch, pods+"/p", strings.NewReader(fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, n)))
		r.Header.Set("Content-Type", "application/merge-patch+json")
		r.Header.Set("Accept", protobuf)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r.WithContext(authn.InProcess(r.Context(), authn.Admin())))
		if w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}
