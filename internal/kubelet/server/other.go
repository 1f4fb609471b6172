package server

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/pprof"
	"path"
	"path/filepath"
	"strings"

	"skiff/internal/kubelet/regular"
)

// Healthz answers whether the kubelet is well. It is also served here at /healthz; on its own it is for those who ask without credentials, on
// the loopback interface.
func (s *Server) Healthz() http.Handler { return http.HandlerFunc(s.healthz) }

func (s *Server) healthz(w http.ResponseWriter, rq *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	check := rq.PathValue("check")
	var err error
	switch check {
	case "", "syncloop":
		if s.opts.Healthy != nil {
			err = s.opts.Healthy(rq.Context())
		}
	case "ping", "log":
	default:
		http.NotFound(w, rq)
		return
	}
	if check == "" {
		s.observe(err)
	}
	switch _, verbose := rq.URL.Query()["verbose"]; {
	case err != nil && check == "": // why is for those who may ask for the check itself
		s.opts.Log.Warn("the kubelet is not well", "error", err)
		http.Error(w, "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed", http.StatusInternalServerError)
	case err != nil:
		http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
	case verbose && check == "":
		fmt.Fprint(w, "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n")
	default:
		fmt.Fprint(w, "ok")
	}
}

// observe counts the checks of /healthz.
func (s *Server) observe(syncLoop error) {
	s.slis.Observe("ping", "healthz", nil)
	s.slis.Observe("log", "healthz", nil)
	s.slis.Observe("syncloop", "healthz", syncLoop)
}

// serveSLIs answers how the checks of /healthz went. They are done for it: nobody else might ask.
func (s *Server) serveSLIs(w http.ResponseWriter, rq *http.Request) {
	var err error
	if s.opts.Healthy != nil {
		err = s.opts.Healthy(rq.Context())
	}
	s.observe(err)
	s.slis.ServeHTTP(w, rq)
}

// configz answers with the kubelet's configuration.
func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	config := map[string]any{}
	if s.opts.Config != nil {
		config["kubeletconfig"] = s.opts.Config()
	}
	writeJSON(w, config)
}

// systemLogs serves the node's own logs.
func (s *Server) systemLogs(w http.ResponseWriter, rq *http.Request) {
	http.StripPrefix("/logs/", http.FileServer(logTree(s.opts.LogDir))).ServeHTTP(w, rq)
}

// logTree is a directory of logs. Pods that collect logs may write to it, so only directories and regular files in it are opened: never a FIFO,
// a device, or by a symbolic link what is outside.
type logTree string

// Open implements http.FileSystem.
func (t logTree) Open(name string) (http.File, error) {
	root, err := filepath.EvalSymlinks(string(t))
	if err != nil {
		return nil, err
	}
	file, err := filepath.EvalSymlinks(filepath.Join(root, path.Clean("/"+name)))
	if err != nil {
		return nil, err
	}
	file, err = filepath.Rel(root, file)
	if err != nil || !filepath.IsLocal(file) {
		return nil, fs.ErrNotExist
	}
	f, err := regular.OpenListed(root, file)
	if errors.Is(err, regular.ErrNotRegular) {
		return nil, fs.ErrNotExist
	}
	return f, err
}

// profile serves the pprof profiles of the process.
func profile(w http.ResponseWriter, rq *http.Request) {
	switch strings.TrimSuffix(rq.PathValue("name"), "/") {
	case "profile":
		pprof.Profile(w, rq)
	case "symbol":
		pprof.Symbol(w, rq)
	case "cmdline":
		pprof.Cmdline(w, rq)
	case "trace":
		pprof.Trace(w, rq)
	default:
		pprof.Index(w, rq)
	}
}
