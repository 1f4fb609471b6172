package front

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// refusalsEvery is how often refused authentications are logged at most: whoever can reach the port can cause them.
	refusalsEvery = time.Minute
	// maxRefusedClients bounds how many clients are told apart in between.
	maxRefusedClients = 1000
	// maxRefusedText bounds what is quoted of a request, in bytes.
	maxRefusedText = 256
)

// refusals logs refused authentications: the first at once, then one line with a count each refusalsEvery until there are none.
type refusals struct {
	log   *slog.Logger
	every time.Duration
	wake  chan struct{} // has room for one

	mu      sync.Mutex
	quiet   bool // one was logged, and others are counted
	count   int
	clients map[string]bool
	last    refusedRequest
}

// refusedRequest is what is logged of one request.
type refusedRequest struct{ path, client, err string }

func newRefusals(log *slog.Logger, every time.Duration) *refusals {
	return &refusals{log: log, every: every, wake: make(chan struct{}, 1), clients: map[string]bool{}}
}

// note logs or counts a request that was refused.
func (f *refusals) note(r *http.Request, err error) {
	one := refusedRequest{path: cut(r.URL.Path), client: cut(r.RemoteAddr), err: cut(err.Error())}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.quiet {
		f.quiet = true
		f.log.Warn("failed to authenticate a request", "path", one.path, "client", one.client, "err", one.err)
		select {
		case f.wake <- struct{}{}:
		default:
		}
		return
	}
	f.log.Debug("failed to authenticate a request", "path", one.path, "client", one.client, "err", one.err)
	f.count++
	f.last = one
	host, _, splitErr := net.SplitHostPort(r.RemoteAddr)
	if splitErr != nil {
		host = one.client
	}
	if len(f.clients) < maxRefusedClients {
		f.clients[host] = true
	}
}

// cut shortens what a client sent.
func cut(s string) string {
	if len(s) > maxRefusedText {
		return s[:maxRefusedText] + "..."
	}
	return s
}

// run logs what was counted, until ctx ends.
func (f *refusals) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		for counting := true; counting; {
			select {
			case <-ctx.Done():
				f.flush()
				return
			case <-time.After(f.every):
				counting = f.flush()
			}
		}
	}
}

// flush logs what was counted since the last line, and reports whether that was anything. If not, the next refusal is logged at once.
func (f *refusals) flush() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		f.quiet = false
		return false
	}
	f.log.Warn("failed to authenticate requests", "count", f.count, "clients", len(f.clients), "lastPath", f.last.path, "lastClient", f.last.client, "lastErr", f.last.err)
	f.count, f.last = 0, refusedRequest{}
	clear(f.clients)
	return true
}
