package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/store/memory"
)

// locked is a buffer that is safe for concurrent writes.
type locked struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

// TestRefusedAuthenticationStorm is front.TestRefusedAuthenticationLog through a whole server.
func TestRefusedAuthenticationStorm(t *testing.T) {
	out := &locked{}
	known := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(known, []byte("sesame,anna,7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept := memory.New(memory.Options{})
	s, err := New(Options{Store: kept, Log: slog.New(slog.NewTextHandler(out, nil)), AdvertiseAddress: "192.0.2.1", Port: 6443,
		Authentication: authnconfig.Options{TokenAuthFile: known}})
	if err != nil {
		t.Fatal(err)
	}
	ready, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.WaitReady(ready); err != nil {
		t.Fatal(err)
	}
	const storm = 500
	for range storm {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
		r.Header.Set("Authorization", "Bearer nobody-knows-it")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized {
			t.Fatalf("answered %d: %s", w.Code, w.Body)
		}
	}
	s.Close() // logs what was counted
	kept.Close()
	if n := strings.Count(out.String(), "authenticat"); n > 2 || !strings.Contains(out.String(), fmt.Sprintf("count=%d", storm-1)) {
		t.Errorf("%d refusals made %d lines:\n%.2000s", storm, n, out.String())
	}
}
