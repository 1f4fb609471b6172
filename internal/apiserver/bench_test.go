package apiserver_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"skiff/internal/apitest"
)

// BenchmarkGet measures a get without a network.
func BenchmarkGet(b *testing.B) {
	s := start(b)
	s.send("POST", inNamespace("configmaps"), configMap("mine")).ok()
	path := inNamespace("configmaps", "mine")
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		if s.ServeHTTP(w, httptest.NewRequest("GET", path, nil)); w.Code != 200 {
			b.Fatal(w.Body.String())
		}
	}
}

// BenchmarkList measures lists of a thousand objects without a network, in the encodings that clients ask for.
func BenchmarkList(b *testing.B) {
	s := start(b)
	for i := range 1000 {
		s.send("POST", inNamespace("configmaps"), configMap(fmt.Sprintf("c-%d", i))).ok()
	}
	for name, accept := range map[string]string{
		"protobuf":          "application/vnd.kubernetes.protobuf",
		"json":              "application/json",
		"table":             asTable,
		"metadata-protobuf": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		"metadata-json":     "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("GET", inNamespace("configmaps"), nil)
				r.Header.Set("Accept", accept)
				w := &discard{httptest.ResponseRecorder{HeaderMap: http.Header{}}}
				if s.ServeHTTP(w, r); w.Code != 0 && w.Code != 200 {
					b.Fatal(w.Code)
				}
			}
		})
	}
}

// BenchmarkOverNetwork measures concurrent requests over HTTP/2.
func BenchmarkOverNetwork(b *testing.B) {
	api := apitest.Start(b)
	c, err := rest.HTTPClientFor(api.Config())
	if err != nil {
		b.Fatal(err)
	}
	path := api.URL() + inNamespace("configmaps")
	do := func(method, path, body string) {
		r, err := http.NewRequest(method, path, strings.NewReader(body))
		if err != nil {
			b.Error(err)
			return
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := c.Do(r)
		if err != nil {
			b.Error(err)
			return
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode/100 != 2 {
			b.Error(answer.Status, err)
		}
	}
	do("POST", path, `{"metadata":{"name":"first"}}`)
	var n atomic.Int64
	for name, one := range map[string]func(){
		"get":    func() { do("GET", path+"/first", "") },
		"create": func() { do("POST", path, fmt.Sprintf(`{"metadata":{"name":"c-%d"}}`, n.Add(1))) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					one()
				}
			})
		})
	}
}

// discard is a http.ResponseWriter that discards the body.
type discard struct{ httptest.ResponseRecorder }

func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
