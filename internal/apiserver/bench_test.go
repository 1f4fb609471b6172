package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/codec"
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

// BenchmarkCreate measures creations with all default admission plugins, in JSON and protobuf, which some watchers observe, without a network.
func BenchmarkCreate(b *testing.B) {
	for _, media := range []string{"application/json", protobuf} {
		b.Run(strings.TrimPrefix(media, "application/"), func(b *testing.B) {
			s := start(b, func(o *apiserver.Options) { o.DisableAdmission = nil })
			ctx, cancel := context.WithCancel(b.Context())
			var watchers sync.WaitGroup
			for range 4 {
				watchers.Go(func() {
					r := httptest.NewRequestWithContext(ctx, "GET", inNamespace("configmaps")+"?watch=1", nil)
					s.ServeHTTP(&discard{httptest.ResponseRecorder{HeaderMap: http.Header{}}}, r)
				})
			}
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Data: map[string]string{"key": strings.Repeat("value ", 50)}}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				n++
				cm.Name = fmt.Sprintf("c-%d", n)
				body, err := json.Marshal(cm)
				if media == protobuf {
					var message []byte
					message, err = cm.Marshal()
					body = codec.AppendEnvelope(nil, codec.EnvelopeHead(corev1.SchemeGroupVersion.WithKind("ConfigMap")), message)
				}
				if err != nil {
					b.Fatal(err)
				}
				r := httptest.NewRequest("POST", inNamespace("configmaps"), bytes.NewReader(body))
				r.Header.Set("Content-Type", media)
				w := httptest.NewRecorder()
				if s.ServeHTTP(w, r); w.Code != 201 {
					b.Fatal(w.Body.String())
				}
			}
			cancel()
			watchers.Wait()
		})
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
