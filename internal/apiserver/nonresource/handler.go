package nonresource

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/serviceaccount"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/flowcontrol"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/journey"
)

// Options are what the handler works with. All are required unless noted.
type Options struct {
	API     *verbs.API
	Build   version.Info
	Address string            // HOST:PORT at which the server says it can be reached
	Flags   map[string]string // what /flagz shows: the values of the command line's flags by their names
	// Profiling has /debug/pprof served.
	Profiling bool
	OpenAPI   http.Handler
	Flow      *flowcontrol.Controller
	// Fair has Flow's tables for debugging served.
	Fair bool
	// TokenDocuments are what verifies the tokens of service accounts; nil if the server issues none.
	TokenDocuments *serviceaccount.Discovery
	Journey        *journey.Recorder // nil if no journeys are recorded
	// Tunnel takes over the connection on which a node wants to be reached; nil if nodes cannot open tunnels.
	Tunnel func(w http.ResponseWriter, r *http.Request, node string)

	// StoreHealthy and StoreReady return why the store cannot be used, or nil: for the checks etcd and etcd-readiness.
	StoreHealthy, StoreReady func(context.Context) error
	CachesSynced             <-chan struct{} // closed when the caches are filled
	// KMSProviders returns why KMS plugins cannot be used, or nil. It may be nil.
	KMSProviders func(context.Context) error
	ShuttingDown func() bool

	Log *slog.Logger
}

// Handler serves the paths that are no resource's.
type Handler struct {
	Options
	began     time.Time
	discovery atomic.Pointer[discovery]
	parts     discoveryParts
}

// New returns a handler. Discovery has the resources of the API until SetServed is called.
func New(o Options) *Handler {
	h := &Handler{Options: o, began: time.Now()}
	h.SetServed(o.API.Served().Infos, nil)
	return h
}

// Allows reports whether a request is served although no authorizer has an opinion on it: see allowsJourney and allowsTunnel.
func (h *Handler) Allows(a *authz.Attributes) bool { return h.allowsJourney(a) || h.allowsTunnel(a) }

// Serve answers a request for a path that is no resource's.
func (h *Handler) Serve(w *response.Writer, r *http.Request, user *authn.User) {
	path := r.URL.Path
	switch {
	case path == "/version" || path == "/version/":
		if r.Method != http.MethodGet {
			response.Fail(w, r, response.ErrMethodNotAllowed)
			return
		}
		h.serveVersion(w)
	case path == "/metrics":
		h.serveMetrics(w, r)
	case path == "/metrics/slis":
		h.serveSLIs(w, r)
	case path == "/statusz":
		h.serveZPage(w, r, h.statuszPage())
	case path == "/flagz":
		h.serveZPage(w, r, h.flagzPage())
	case strings.HasPrefix(path, "/openapi/"):
		h.OpenAPI.ServeHTTP(w, r)
	case path == serviceaccount.ConfigurationPath || path == serviceaccount.KeysPath:
		h.serveTokenDocuments(w, r)
	case path == "/debug/pprof" && h.Profiling:
		http.Redirect(w, r, path+"/", http.StatusFound)
	case strings.HasPrefix(path, "/debug/pprof/") && h.Profiling:
		serveProfile(w, r)
	case h.Fair && strings.HasPrefix(path, flowDumps):
		h.serveFlowDump(w, r)
	case h.Journey != nil && path == journey.PathSpans:
		if err := h.serveSpans(w, r, user); err != nil {
			response.Fail(w, r, err)
		}
	case h.Journey != nil && path == journey.PathJourney:
		if err := h.serveJourney(w, r, user); err != nil {
			response.Fail(w, r, err)
		}
	case h.Tunnel != nil && strings.HasPrefix(path, tunnelPrefix):
		h.serveTunnel(w, r, user)
	case path == "/":
		h.serveRoot(w)
	case path == "/healthz" || path == "/livez" || path == "/readyz" ||
		strings.HasPrefix(path, "/healthz/") || strings.HasPrefix(path, "/livez/") || strings.HasPrefix(path, "/readyz/"):
		h.serveHealth(w, r)
	case h.serveDiscovery(w, r):
	case !h.API.Ready.Load():
		response.Fail(w, r, errNotInstalled) // it may be the group of a definition that is not served yet
	default:
		http.Error(w, "404 page not found", http.StatusNotFound)
	}
}

// errNotInstalled is the error of a request for a path that may be known as soon as the server is ready.
var errNotInstalled = func() error {
	err := apierrors.NewServiceUnavailable("the request has been made before all known HTTP paths have been installed, please try again")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 5}
	return err
}()

const flowDumps = "/debug/api_priority_and_fairness/"

// serveFlowDump answers with one of the tables of flow control.
func (h *Handler) serveFlowDump(w http.ResponseWriter, r *http.Request) {
	var table bytes.Buffer
	if !h.Flow.Dump(&table, strings.TrimPrefix(r.URL.Path, flowDumps), r.URL.Query().Get("includeRequestDetails") != "") {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(table.Bytes())
}

func (h *Handler) serveVersion(w http.ResponseWriter) {
	body, err := json.MarshalIndent(h.Build, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// serveTokenDocuments answers with the OpenID discovery documents, with which others verify tokens of service accounts.
func (h *Handler) serveTokenDocuments(w http.ResponseWriter, r *http.Request) {
	documents := h.TokenDocuments
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

// serveRoot answers with the list of paths.
func (h *Handler) serveRoot(w http.ResponseWriter) {
	paths := []string{"/api", "/api/v1", "/apis", "/apis/", "/flagz", "/healthz", "/livez", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/readyz", "/statusz", "/version"}
	if h.TokenDocuments != nil {
		paths = append(paths, serviceaccount.ConfigurationPath, serviceaccount.KeysPath)
	}
	for _, g := range h.documents().groups {
		paths = append(paths, "/apis/"+g.Name)
		for _, v := range g.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	for _, root := range []string{"/healthz/", "/livez/", "/readyz/"} {
		for _, c := range h.checks(root) {
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
