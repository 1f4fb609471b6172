package apiserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"time"

	apimachineryversion "k8s.io/apimachinery/pkg/version"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/serviceaccount"
	"skiff/internal/apiserver/response"
	"skiff/internal/journey"
)

// Version is the Kubernetes version served. The suffix says who serves it.
const Version = "v1.37.1+skiff"

// BuildDate and GitCommit are set by the linker.
var (
	BuildDate = "1970-01-01T00:00:00Z"
	GitCommit = "unknown"
)

// serveOther answers paths that are no resource's.
func (s *Server) serveOther(w *response.Writer, r *http.Request, user *authn.User) {
	path := r.URL.Path
	switch {
	case path == "/version" || path == "/version/":
		if r.Method != http.MethodGet {
			response.Fail(w, r, response.ErrMethodNotAllowed)
			return
		}
		s.serveVersion(w)
	case path == "/metrics":
		s.serveMetrics(w, r)
	case path == "/metrics/slis":
		s.serveSLIs(w, r)
	case path == "/statusz":
		s.serveAbout(w, r, s.statusPage())
	case path == "/flagz":
		s.serveAbout(w, r, s.flagPage())
	case strings.HasPrefix(path, "/openapi/"):
		s.openapi.ServeHTTP(w, r)
	case path == serviceaccount.ConfigurationPath || path == serviceaccount.KeysPath:
		s.serveIssuer(w, r)
	case path == "/debug/pprof" && !s.opts.NoProfiling:
		http.Redirect(w, r, path+"/", http.StatusFound)
	case strings.HasPrefix(path, "/debug/pprof/") && !s.opts.NoProfiling:
		serveProfile(w, r)
	case s.opts.Journey != nil && path == journey.PathSpans:
		if err := s.serveSpans(w, r, user); err != nil {
			response.Fail(w, r, err)
		}
	case s.opts.Journey != nil && path == journey.PathJourney:
		if err := s.serveJourney(w, r, user); err != nil {
			response.Fail(w, r, err)
		}
	case s.opts.Tunnel != nil && strings.HasPrefix(path, tunnelPrefix):
		s.serveTunnel(w, r, user)
	case path == "/":
		s.serveRoot(w)
	case path == "/healthz" || path == "/livez" || path == "/readyz" ||
		strings.HasPrefix(path, "/healthz/") || strings.HasPrefix(path, "/livez/") || strings.HasPrefix(path, "/readyz/"):
		s.serveHealth(w, r)
	case s.serveDiscovery(w, r):
	default:
		http.Error(w, "404 page not found", http.StatusNotFound)
	}
}

func versionInfo() apimachineryversion.Info {
	return apimachineryversion.Info{Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "37",
		MinCompatibilityMajor: "1", MinCompatibilityMinor: "36", GitVersion: Version, GitCommit: GitCommit, GitTreeState: "clean", BuildDate: BuildDate,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH}
}

func (s *Server) serveVersion(w http.ResponseWriter) {
	body, err := json.MarshalIndent(versionInfo(), "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// serveIssuer answers how tokens of service accounts are verified.
func (s *Server) serveIssuer(w http.ResponseWriter, r *http.Request) {
	documents := s.identity.authentication.Discovery
	if documents == nil {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodGet {
		response.Fail(w, r, response.ErrMethodNotAllowed)
		return
	}
	body, kind := documents.Configuration, serviceaccount.ConfigurationType
	if r.URL.Path == serviceaccount.KeysPath {
		body, kind = documents.Keys, serviceaccount.KeysType
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", serviceaccount.DocumentsMaxAge))
	_, _ = w.Write(body)
}

// serveRoot lists the paths there are.
func (s *Server) serveRoot(w http.ResponseWriter) {
	paths := []string{"/api", "/api/v1", "/apis", "/apis/", "/flagz", "/healthz", "/livez", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/readyz", "/statusz", "/version"}
	if s.identity.authentication.Discovery != nil {
		paths = append(paths, serviceaccount.ConfigurationPath, serviceaccount.KeysPath)
	}
	for _, g := range s.discovery.groups {
		paths = append(paths, "/apis/"+g.Name)
		for _, v := range g.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	for _, root := range []string{"/healthz/", "/livez/", "/readyz/"} {
		for _, c := range s.checks(root) {
			paths = append(paths, root+c.name)
		}
	}
	sort.Strings(paths)
	body, err := json.MarshalIndent(map[string][]string{"paths": paths}, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// check is one thing that must hold for the server to be well.
type check struct {
	name string
	ask  func(context.Context) error
}

func (s *Server) checks(root string) []check {
	ok := func(context.Context) error { return nil }
	checks := []check{{"ping", ok}, {"log", ok}, {"etcd", s.storeHealthy(s.opts.StoreHealthTimeout)}}
	if root == "/readyz/" {
		checks = append(checks, check{"etcd-readiness", s.storeHealthy(s.opts.StoreReadyTimeout)})
	}
	if root != "/livez/" {
		checks = append(checks, check{"informer-sync", func(context.Context) error {
			select {
			case <-s.feed.Synced():
				return nil
			default:
				return fmt.Errorf("the caches are not filled yet")
			}
		}})
	}
	if root == "/readyz/" {
		checks = append(checks, check{"shutdown", func(context.Context) error {
			if s.leaving.Load() || s.stopping.Err() != nil {
				return fmt.Errorf("process is shutting down")
			}
			return nil
		}}, check{"poststarthook/bootstrap-controller", func(context.Context) error {
			if !s.api.Ready.Load() {
				return fmt.Errorf("not finished")
			}
			return nil
		}})
	}
	return checks
}

// storeHealthy asks the store whether it is well, and waits so long for the answer.
func (s *Server) storeHealthy(timeout time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if s.opts.StoreHealthy == nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return s.opts.StoreHealthy(ctx)
	}
}

// serveHealth answers /healthz, /livez and /readyz, as a whole or one check of them.
func (s *Server) serveHealth(w http.ResponseWriter, r *http.Request) {
	root, one, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	checks := s.checks("/" + root + "/")
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
		if one == "" { // as upstream, which counts the checks of whole endpoints
			s.api.Metrics.Checks.Observe(c.name, root, err)
		}
		switch {
		case err != nil:
			failed = true
			s.opts.Log.Warn("health check failed", "check", c.name, "error", err)
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

// serveSLIs answers /metrics/slis. The checks of /livez and /readyz are done for it: without a kubelet that probes the server, nobody else
// might.
func (s *Server) serveSLIs(w http.ResponseWriter, r *http.Request) {
	for _, root := range []string{"livez", "readyz"} {
		for _, c := range s.checks("/" + root + "/") {
			s.api.Metrics.Checks.Observe(c.name, root, c.ask(r.Context()))
		}
	}
	s.api.Metrics.Checks.ServeHTTP(w, r)
}

// address is where the server says it can be reached.
func (s *Server) address() string {
	return net.JoinHostPort(cmp.Or(s.opts.ExternalHost, s.opts.AdvertiseAddress), strconv.Itoa(s.opts.Port))
}

// encodeHash shortens a string to the hash that discovery shows.
func encodeHash(of string) string {
	sum := sha256.Sum256([]byte(of))
	return base64.StdEncoding.EncodeToString(sum[:8])
}
