package apiserver_test

import (
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
