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
	// refusalsEvery is the least time between two log lines about failed authentications: whoever can reach the port can cause them.
	refusalsEvery = time.Minute
	// maxRefusedClients bounds how many clients are counted between two log lines.
	maxRefusedClients = 1000
	// maxRefusedText is how many bytes of a path, a client or an error are logged.
	maxRefusedText = 256
)

// refusals logs failed authentications: the first at once, then one line with a count each refusalsEvery, until an interval has none.
type refusals struct {
	log   *slog.Logger
	every time.Duration
	wake  chan struct{} // buffers one wake-up

	mu               sync.Mutex
	countingRefusals bool // set after a refusal was logged: further ones are counted until the next flush
	count            int
	clients          map[string]bool
	last             refusedRequest
}

// refusedRequest has what is logged about a request that failed authentication.
type refusedRequest struct{ path, client, err string }

func newRefusals(log *slog.Logger, every time.Duration) *refusals {
	return &refusals{log: log, every: every, wake: make(chan struct{}, 1), clients: map[string]bool{}}
}

// note logs or counts a request that failed authentication.
func (f *refusals) note(r *http.Request, err error) {
	one := refusedRequest{path: truncate(r.URL.Path), client: truncate(r.RemoteAddr), err: truncate(err.Error())}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.countingRefusals {
		f.countingRefusals = true
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

// truncate shortens a text that a client sent to maxRefusedText.
func truncate(s string) string {
	if len(s) > maxRefusedText {
		return s[:maxRefusedText] + "..."
	}
	return s
}

// run flushes the counts each refusalsEvery while there are refusals, until ctx ends.
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

// flush logs the refusals that were counted since the last line, and reports whether there were any. If not, the next refusal is logged at once.
func (f *refusals) flush() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		f.countingRefusals = false
		return false
	}
	f.log.Warn("failed to authenticate requests", "count", f.count, "clients", len(f.clients), "lastPath", f.last.path, "lastClient", f.last.client, "lastErr", f.last.err)
	f.count, f.last = 0, refusedRequest{}
	clear(f.clients)
	return true
}
