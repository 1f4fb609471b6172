package front

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestRefusedAuthenticationLog: a storm of requests with credentials that nobody knows makes one line and then one a minute with how many
// there were, however long what they send is; when it is over the next is logged at once.
func TestRefusedAuthenticationLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		f := newRefusals(slog.New(slog.NewTextHandler(&out, nil)), refusalsEvery)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { f.run(ctx) })
		storm := func() {
			for i := range 6000 { // 100 a second, for a minute
				r := httptest.NewRequest(http.MethodGet, "/"+strings.Repeat("x", 5000), nil)
				r.RemoteAddr = fmt.Sprintf("192.0.2.%d:%d", i%3, 1024+i)
				f.note(r, errors.New(strings.Repeat("y", 5000)))
				time.Sleep(10 * time.Millisecond)
			}
		}
		for range 5 {
			storm()
		}
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) < 5 || len(lines) > 6 || !strings.Contains(lines[0], "failed to authenticate a request") || !strings.Contains(lines[1], "count=") || !strings.Contains(lines[1], "clients=3") {
			t.Errorf("30000 refusals in 5 minutes made %d lines:\n%.2000s", len(lines), &out)
		}
		if out.Len() > 6*4*maxRefusedText {
			t.Errorf("%d bytes were logged", out.Len())
		}
		time.Sleep(3 * refusalsEvery)
		out.Reset()
		f.note(httptest.NewRequest(http.MethodGet, "/later", nil), errors.New("no"))
		if !strings.Contains(out.String(), "path=/later") {
			t.Errorf("after the storm one makes %q", &out)
		}
		cancel()
		wg.Wait()
	})
}
