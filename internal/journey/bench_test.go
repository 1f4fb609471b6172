package journey

import (
	"net/http"
	"testing"
	"time"
)

// BenchmarkRequest measures the recording of a create: begin, eight stages, a write, its delivery, the end. Subtract BenchmarkClocks for the cost
// without reading the clock.
func BenchmarkRequest(b *testing.B) {
	r := New(Options{})
	h := http.Header{"User-Agent": {"kubectl/v1.37.1 (linux/amd64) kubernetes/0000000"}}
	stages := []string{Authentication, Authorization, "decode", "NamespaceLifecycle", "managed fields", "validation", "store", "response"}
	for _, name := range append(stages, "create", "configmaps") {
		r.names.id(name)
	}
	var revision int64
	b.ReportAllocs()
	for b.Loop() {
		revision++
		request(r, h, stages, revision)
	}
}

func BenchmarkRequestParallel(b *testing.B) {
	r := New(Options{})
	h := http.Header{"User-Agent": {"kubectl/v1.37.1 (linux/amd64) kubernetes/0000000"}}
	stages := []string{Authentication, Authorization, "decode", "NamespaceLifecycle", "managed fields", "validation", "store", "response"}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var revision int64
		for pb.Next() {
			revision++
			request(r, h, stages, revision)
		}
	})
}

func request(r *Recorder, h http.Header, stages []string, revision int64) {
	t := r.Begin(h, "create", "configmaps", "default", "settings")
	for _, s := range stages {
		t.Stage(s)
	}
	t.Wrote("configmaps", deploymentUID, revision)
	r.Delivered(deploymentUID, revision)
	t.End(201)
}

func BenchmarkDelivered(b *testing.B) {
	r := New(Options{})
	var revision int64
	for b.Loop() {
		revision++
		r.Delivered(deploymentUID, revision)
	}
}

func BenchmarkNil(b *testing.B) {
	for b.Loop() {
		request(nil, nil, []string{"a", "b", "c", "d", "e", "f", "g", "h"}, 1)
	}
}

func BenchmarkSnapshot(b *testing.B) {
	r := New(Options{})
	for i := range 8192 {
		request(r, http.Header{}, []string{"a", "b", "c", "d", "e", "f", "g", "h"}, int64(i+1))
	}
	for b.Loop() {
		r.Snapshot()
	}
}

// BenchmarkClocks measures the ten clock readings of BenchmarkRequest.
func BenchmarkClocks(b *testing.B) {
	for b.Loop() {
		start := time.Now()
		for range 10 {
			time.Since(start)
		}
		time.Now()
	}
}
