package apiserver_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// BenchmarkGet is what a get costs without a network.
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

// BenchmarkList is what a list of a thousand objects costs without a network, in the forms that clients ask for.
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

// discard is a client that looks at nothing but the code.
type discard struct{ httptest.ResponseRecorder }

func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
