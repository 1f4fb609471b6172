package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestDirect sends requests to each handler over a network and directly: the responses must be the same.
func TestDirect(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 100_000)
	for name, handle := range map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"a status": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			w.WriteHeader(http.StatusOK)
		},
		"a header after the status": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Early", "yes")
			w.WriteHeader(http.StatusOK)
			w.Header().Set("X-Late", "no")
		},
		"the request": func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("X-Sent") // a handler may change its copy of the header
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write([]byte(r.Method + " " + r.RequestURI + " " + r.URL.Query().Get("q") + " " + string(body)))
		},
		"a large body": func(w http.ResponseWriter, _ *http.Request) {
			for chunk := []byte(large); len(chunk) > 0; {
				n := min(len(chunk), 100_000)
				_, _ = w.Write(chunk[:n])
				chunk = chunk[n:]
			}
		},
		"a body in pieces": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("one "))
			w.(http.Flusher).Flush()
			_, _ = w.Write([]byte("two "))
			_, _ = w.Write([]byte("three"))
			w.(http.Flusher).Flush()
		},
		"half an answer": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("one "))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
		"no answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			network := httptest.NewServer(handle)
			defer network.Close()
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				want := exchangeWith(t, network.Client().Transport, method, network.URL)
				got := exchangeWith(t, directTransport{handle}, method, "http://in.process")
				if method == http.MethodPost && want.cut {
					want = observed{failed: true, sent: want.sent} // the response to a write is complete, or an error
				}
				if got != want {
					t.Errorf("%s directly:\n%.300v\nover a network:\n%.300v", method, got, want)
				}
			}
		})
	}
}

type observed struct {
	status                  int
	early, late, body, sent string
	failed, cut             bool
}

func exchangeWith(t *testing.T, transport http.RoundTripper, method, url string) (s observed) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url+"/a/b?q=c", strings.NewReader("the body"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Sent", "yes")
	resp, err := transport.RoundTrip(req)
	s.sent = req.Header.Get("X-Sent")
	if err != nil {
		s.failed = true
		return s
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	s.status, s.early, s.late, s.body, s.cut = resp.StatusCode, resp.Header.Get("X-Early"), resp.Header.Get("X-Late"), string(body), err != nil
	return s
}

// TestDirectEnds checks that a handler is cancelled when nobody waits for its response any more, and that no goroutine is left.
func TestDirectEnds(t *testing.T) {
	before := runtime.NumGoroutine()
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	silent := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
		ended <- r.Context().Err()
	})
	streaming := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		began <- struct{}{}
		var err error
		for err == nil && r.Context().Err() == nil {
			_, err = w.Write([]byte("tick\n"))
		}
		ended <- errors.Join(err, r.Context().Err())
	})
	open := func(ctx context.Context, h http.Handler) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://in.process/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		return directTransport{h}.RoundTrip(req)
	}
	cancelled := func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) }

	t.Run("before the answer", func(t *testing.T) {
		ctx, cancel := cancelled()
		go func() { <-began; cancel() }()
		if _, err := open(ctx, silent); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if err := <-ended; err == nil {
			t.Error("the handler was not told")
		}
	})
	t.Run("in the middle", func(t *testing.T) {
		ctx, cancel := cancelled()
		resp, err := open(ctx, streaming)
		if err != nil {
			t.Fatal(err)
		}
		<-began
		first := make([]byte, 5)
		if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "tick\n" {
			t.Fatalf("read %q, %v", first, err)
		}
		cancel()
		if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, context.Canceled) {
			t.Errorf("reading ended with %v", err)
		}
		if err := <-ended; err == nil {
			t.Error("the handler was not told")
		}
		resp.Body.Close()
	})
	t.Run("by closing", func(t *testing.T) {
		resp, err := open(t.Context(), streaming)
		if err != nil {
			t.Fatal(err)
		}
		<-began
		resp.Body.Close()
		if err := <-ended; err == nil {
			t.Error("the handler was not told")
		}
		if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
			t.Error("a closed body was read")
		}
	})
	t.Run("while nothing is written", func(t *testing.T) {
		ctx, cancel := cancelled()
		resp, err := open(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			silent(w, r)
		}))
		if err != nil {
			t.Fatal(err)
		}
		<-began
		cancel()
		if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("reading ended with %v", err)
		}
		<-ended
		resp.Body.Close()
	})
	t.Run("because nobody reads", func(t *testing.T) {
		resp, err := open(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			cut := time.AfterFunc(10*time.Millisecond, func() { ended <- http.NewResponseController(w).SetWriteDeadline(time.Now()) })
			defer cut.Stop()
			for err := error(nil); err == nil; {
				_, err = w.Write([]byte("tick\n"))
			}
		}))
		if err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("reading ended with %v", err)
		}
		resp.Body.Close()
	})
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines are left over:\n%s", runtime.NumGoroutine()-before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

func BenchmarkDirect(b *testing.B) {
	body := bytes.Repeat([]byte("x"), 2000)
	d := directTransport{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })}
	b.ReportAllocs()
	for b.Loop() {
		req, err := http.NewRequest(http.MethodGet, "http://in.process/", http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		resp, err := d.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
