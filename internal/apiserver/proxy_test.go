package apiserver

import (
	"context"
	"strings"
	"testing"
	"time"

	"skiff/internal/apiserver/authz"
)

// noCreate allows everything but to create nodes/proxy.
type noCreate struct{}

func (noCreate) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	if a.Verb == "create" && a.Plural == "nodes" && a.Subresource == "proxy" {
		return authz.NoOpinion, "it may only read", nil
	}
	return authz.Allow, "", nil
}

// TestNodeProxyAsksForCreate reaches for what runs in containers by GET, with which WebSockets begin.
func TestNodeProxyAsksForCreate(t *testing.T) {
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket"}
	for _, may := range []bool{false, true} {
		s := newTestServer(t, func(o *Options) {
			if !may {
				o.Authorizer = noCreate{}
			}
		})
		s.node("n", "127.0.0.1", "10250")
		deadline := time.Now().Add(20 * time.Second)
		for s.do("GET", "/api/v1/nodes/n/proxy/healthz", "").Code != 400 { // until the cache has the node and its address
			if time.Now().After(deadline) {
				t.Fatal("the cache does not get the node")
			}
			time.Sleep(time.Millisecond)
		}
		for _, c := range []struct {
			path    string
			headers []string
			creates bool
		}{
			{"n/proxy/exec/default/p/c?command=id&output=1", upgrade, true},
			{"n/proxy/exec/default/p/c?command=id&output=1", nil, true},
			{"n/proxy/attach/default/p/c?output=1", upgrade, true},
			{"n/proxy/portForward/default/p?port=80", upgrade, true},
			{"n/proxy/run/default/p/c?cmd=id", nil, true},
			{"n/proxy/pods/../exec/default/p/c", nil, true},
			{"n/proxy//exec/default/p/c", nil, true},
			{"n/proxy/%65xec/default/p/c", nil, true},
			{"n/proxy/pods", upgrade, true},
			{"n:10250/proxy/exec/default/p/c", nil, true},
			{"https:n:10250/proxy/exec/default/p/c", nil, true},
			{"n/proxy/pods", nil, false},
			{"n/proxy/metrics/cadvisor", nil, false},
			{"n/proxy/containerLogs/default/exec/c", nil, false},
			{"n/proxy/executable", nil, false},
			{"n:9100/proxy/exec", upgrade, false}, // which is not the kubelet's
		} {
			// The address is one of this machine only, which is refused once the client is allowed.
			want, code := "address not allowed", 400
			if c.creates && !may {
				want, code = "it may only read", 403
			}
			if w := s.do("GET", "/api/v1/nodes/"+c.path, "", c.headers...); w.Code != code || !strings.Contains(w.Body.String(), want) {
				t.Errorf("create is allowed: %t; %s %v: %d %s, want %d %s", may, c.path, c.headers, w.Code, w.Body, code, want)
			}
		}
	}
}
