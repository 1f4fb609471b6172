package http2

import (
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// h2spec asks a server what the protocol's documents ask of it.
func TestH2spec(t *testing.T) {
	address := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "hello")
	}), Options{MaxStreams: 100})
	host, port, _ := strings.Cut(address, ":")
	out, err := exec.Command("go", "tool", "h2spec", "--host", host, "--port", port, "--tls", "--insecure", "--timeout", "1").CombinedOutput()
	if err != nil {
		_, failures, _ := strings.Cut(string(out), "Failures:")
		t.Errorf("%v\n%s", err, failures)
	}
	if summary := string(out[strings.LastIndex(strings.TrimSpace(string(out)), "\n")+1:]); !strings.Contains(summary, " 0 failed") {
		t.Error(summary)
	} else {
		t.Log(summary)
	}
}
