package apiserver_test

import (
	"context"
	"io"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// RoundTrip makes the server a transport without a network, so that clients work in a bubble of synctest.
func (s *server) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	body, out := io.Pipe()
	w := &pipeWriter{out: out, header: http.Header{}, begun: make(chan struct{})}
	in := r.Clone(ctx)
	if in.Body == nil {
		in.Body = http.NoBody
	}
	go func() {
		defer cancel()
		defer func() {
			err := io.EOF
			if p := recover(); p != nil { // as a connection that is cut
				err = io.ErrUnexpectedEOF
			}
			w.WriteHeader(http.StatusOK)
			out.CloseWithError(err)
		}()
		s.ServeHTTP(w, in)
	}()
	<-w.begun
	return &http.Response{StatusCode: w.code, Status: http.StatusText(w.code), Header: w.header, Body: pipeBody{body, cancel}, Request: r, ProtoMajor: 2}, nil
}

type pipeWriter struct {
	out    *io.PipeWriter
	header http.Header
	code   int
	begun  chan struct{}
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(code int) {
	if w.code == 0 {
		w.code = code
		close(w.begun)
	}
}

func (w *pipeWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.out.Write(b)
}

func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }

// pipeBody is an answer being read. Closing it ends the request.
type pipeBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b pipeBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

// config is how client-go reaches the server. With a content type it speaks that, JSON otherwise.
func (s *server) config(contentType string) *rest.Config {
	return &rest.Config{Host: "http://skiff", Transport: s, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: contentType}}
}

func (s *server) client(contentType string) kubernetes.Interface {
	s.t.Helper()
	c, err := kubernetes.NewForConfig(s.config(contentType))
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// watch opens a watch of a path and decodes its events as client-go does.
func (s *server) watch(path, accept string, decoder runtime.Decoder) watch.Interface {
	s.t.Helper()
	config := s.config("")
	config.AcceptContentTypes = accept
	if accept == "application/vnd.kubernetes.protobuf" {
		config.ContentType = accept
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	if decoder != nil {
		config.NegotiatedSerializer = with{config.NegotiatedSerializer, decoder}
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	w, err := client.Get().AbsPath(pathOf(path)).RequestURI(path).Watch(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(w.Stop)
	return w
}

func pathOf(uri string) string {
	for i := range uri {
		if uri[i] == '?' {
			return uri[:i]
		}
	}
	return uri
}

// with decodes everything with one decoder.
type with struct {
	runtime.NegotiatedSerializer
	decoder runtime.Decoder
}

func (w with) DecoderToVersion(runtime.Decoder, runtime.GroupVersioner) runtime.Decoder {
	return w.decoder
}
