package client_test

import (
	"context"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apitest"
	"skiff/internal/client"
)

const (
	component = "tester"
	userName  = "system:tester"
	groupName = "system:testers"
)

// eachWay runs a test with a client over HTTPS and with one in process: both must behave alike.
func eachWay(t *testing.T, test func(t *testing.T, c *client.Client, seen *requests)) {
	for _, way := range []string{"https", "in process"} {
		t.Run(way, func(t *testing.T) {
			checkLeaks(t)
			seen := &requests{}
			server := apitest.Start(t, apitest.WithServer(seen.watch))
			if way == "https" {
				test(t, server.Remote(component, userName, groupName), seen)
			} else {
				test(t, server.InProcess(component, userName, groupName), seen)
			}
		})
	}
}

// requests records the requests to a server, and decides which it refuses.
type requests struct {
	mu      sync.Mutex
	headers []http.Header
	paths   []string
	refuse  func(*authz.Attributes) bool // set by refuseIf
}

// refuseIf has the server refuse requests from now on.
func (r *requests) refuseIf(refuse func(*authz.Attributes) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = refuse
}

func (r *requests) watch(o *apiserver.Options) {
	o.Seen = func(req *http.Request, _ *authz.Attributes) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.headers = append(r.headers, req.Header.Clone())
		r.paths = append(r.paths, req.Method+" "+req.URL.Path)
	}
	o.Authorizer = r
}

// Authorize allows everything except the requests to be refused.
func (r *requests) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	r.mu.Lock()
	refuse := r.refuse
	r.mu.Unlock()
	if refuse != nil && refuse(a) {
		return authz.Deny, "it is a secret", nil
	}
	return authz.Allow, "", nil
}

// last returns the header of the last request.
func (r *requests) last() http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.headers[len(r.headers)-1]
}

// to counts the requests to a path.
func (r *requests) to(path string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.paths {
		if p == path {
			n++
		}
	}
	return n
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// checkLeaks checks that a test leaves no goroutine behind. Goroutines that the runtime or a library starts once are not counted.
func checkLeaks(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				stacks := make([]byte, 1<<20)
				t.Fatalf("%d goroutines are left over:\n%s", runtime.NumGoroutine()-before, stacks[:runtime.Stack(stacks, true)])
			}
		}
	})
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }
