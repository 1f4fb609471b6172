package client_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/client"
)

// BenchmarkRequest compares the cost of a request over HTTPS and in process.
func BenchmarkRequest(b *testing.B) {
	server := apitest.Start(b, apitest.WithoutGuard())
	for _, way := range []struct {
		name   string
		client *client.Client
	}{
		{"in process", server.InProcess("bench", "system:bench", "system:masters")},
		{"https", server.Remote("bench", "system:bench", "system:masters")},
	} {
		maps := way.client.Kubernetes().CoreV1().ConfigMaps("default")
		small := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}, Data: map[string]string{"key": "value"}}
		b.Run("create/"+way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := maps.Create(b.Context(), small, metav1.CreateOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		one, err := maps.Create(b.Context(), small, metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run("get/"+way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := maps.Get(b.Context(), one.Name, metav1.GetOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNew measures the cost of a client.
func BenchmarkNew(b *testing.B) {
	server := apitest.Start(b)
	b.ReportAllocs()
	for b.Loop() {
		server.InProcess("bench", "system:bench", "system:masters")
	}
}
