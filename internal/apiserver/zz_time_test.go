package apiserver_test

import (
	"net/http"
	"testing"
	"time"
)

func TestZZTime(t *testing.T) {
	by := inProcess(t)
	var last time.Duration
	play(t, "testdata/stories/bodies.txt", func(r *http.Request) (*http.Response, error) {
		b := time.Now()
		x, err := by(r)
		last = time.Since(b)
		return x, err
	}, func(s *step, got string) {
		if last > 20*time.Millisecond {
			t.Logf("%d: %s %v", s.line, s.request, last)
		}
	})
}
