package nonresource

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

// check is one health check.
type check struct {
	name string
	ask  func(context.Context) error
}

// checks returns the health checks of an endpoint: "/healthz/", "/livez/" or "/readyz/".
func (h *Handler) checks(root string) []check {
	ok := func(context.Context) error { return nil }
	checks := []check{{"ping", ok}, {"log", ok}, {"etcd", h.StoreHealthy}}
	if root == "/readyz/" {
		checks = append(checks, check{"etcd-readiness", h.StoreReady})
	}
	if root != "/livez/" && h.KMSProviders != nil {
		checks = append(checks, check{"kms-providers", h.KMSProviders})
	}
	if root != "/livez/" {
		checks = append(checks, check{"informer-sync", func(context.Context) error {
			select {
			case <-h.CachesSynced:
				return nil
			default:
				return fmt.Errorf("the caches are not filled yet")
			}
		}})
	}
	if root == "/readyz/" {
		checks = append(checks, check{"shutdown", func(context.Context) error {
			if h.ShuttingDown() {
				return fmt.Errorf("process is shutting down")
			}
			return nil
		}}, check{"poststarthook/bootstrap-controller", func(context.Context) error {
			if !h.API.Ready.Load() {
				return fmt.Errorf("not finished")
			}
			return nil
		}})
	}
	return checks
}

// serveHealth answers /healthz, /livez and /readyz, or one of their checks such as /livez/etcd.
func (h *Handler) serveHealth(w http.ResponseWriter, r *http.Request) {
	root, one, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	checks := h.checks("/" + root + "/")
	if one != "" {
		for _, c := range checks {
			if c.name == one {
				checks = []check{c}
				break
			}
		}
		if len(checks) != 1 {
			http.Error(w, "404 page not found", http.StatusNotFound)
			return
		}
	}
	excluded := map[string]bool{}
	for _, name := range r.URL.Query()["exclude"] {
		excluded[name] = true
	}
	var out strings.Builder
	failed := false
	for _, c := range checks {
		if excluded[c.name] {
			fmt.Fprintf(&out, "[+]%s excluded: ok\n", c.name)
			continue
		}
		err := c.ask(r.Context())
		if one == "" { // as upstream, which does not count checks that are asked for one by one
			h.API.Metrics.Checks.Observe(c.name, root, err)
		}
		switch {
		case err != nil:
			failed = true
			h.Log.Warn("health check failed", "check", c.name, "error", err)
			fmt.Fprintf(&out, "[-]%s failed: reason withheld\n", c.name)
		default:
			fmt.Fprintf(&out, "[+]%s ok\n", c.name)
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if failed {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, "%s%s check failed\n", out.String(), root)
		return
	}
	if _, verbose := r.URL.Query()["verbose"]; verbose {
		fmt.Fprintf(w, "%s%s check passed\n", out.String(), root)
		return
	}
	fmt.Fprint(w, "ok")
}

// serveSLIs answers /metrics/slis. It runs the checks of /livez and /readyz for it, since there may be no kubelet that probes the server.
func (h *Handler) serveSLIs(w http.ResponseWriter, r *http.Request) {
	for _, root := range []string{"livez", "readyz"} {
		for _, c := range h.checks("/" + root + "/") {
			h.API.Metrics.Checks.Observe(c.name, root, c.ask(r.Context()))
		}
	}
	h.API.Metrics.Checks.ServeHTTP(w, r)
}
