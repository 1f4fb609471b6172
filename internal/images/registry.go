package images

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// registry serves a store by the OCI distribution specification.
type registry struct {
	store   *Store
	uploads *uploads
	log     *slog.Logger
}

func newRegistry(s *Store, log *slog.Logger) *registry {
	return &registry{store: s, uploads: &uploads{byID: map[string]*upload{}}, log: log}
}

// Handler returns a handler that serves a store to everybody, without the checks of Serve, for a server that has its own, such as a test's.
func Handler(s *Store) http.Handler { return newRegistry(s, slog.Default()) }

// ServeHTTP routes a request. The name of a repository may have any number of slashes, so paths are parsed from their end.
func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	path, ok := strings.CutPrefix(req.URL.Path, "/v2/")
	switch {
	case !ok && req.URL.Path != "/v2":
		refuse(w, http.StatusNotFound, "NOT_FOUND", "this is an image registry: its paths begin with /v2/")
	case path == "":
		answer(w, http.StatusOK, struct{}{})
	case path == "_catalog":
		r.catalog(w, req)
	default:
		r.route(w, req, strings.Split(path, "/"))
	}
}

func (r *registry) route(w http.ResponseWriter, req *http.Request, parts []string) {
	ns := req.URL.Query().Get("ns")
	at := func(i int) string { // counted from the end
		if len(parts) < i {
			return ""
		}
		return parts[len(parts)-i]
	}
	repository := func(drop int) string { return strings.Join(parts[:max(0, len(parts)-drop)], "/") }
	var serve func(http.ResponseWriter, *http.Request, Name)
	var name, ref string
	switch {
	case at(2) == "manifests":
		serve, name, ref = r.manifest, repository(2), at(1)
	case at(3) == "blobs" && at(2) == "uploads":
		serve, name = r.upload(at(1)), repository(3)
	case at(2) == "blobs" && at(1) == "uploads":
		serve, name = r.upload(""), repository(2)
	case at(2) == "blobs":
		serve, name, ref = r.blob, repository(2), at(1)
	case at(2) == "tags" && at(1) == "list":
		serve, name = r.tags, repository(2)
	default:
		refuse(w, http.StatusNotFound, "NOT_FOUND", "there is no such path in the registry API")
		return
	}
	n, err := requested(ns, name, ref)
	if err != nil {
		refuse(w, http.StatusBadRequest, "NAME_INVALID", err.Error())
		return
	}
	serve(w, req, n)
}

func (r *registry) manifest(w http.ResponseWriter, req *http.Request, n Name) {
	switch req.Method {
	case http.MethodGet, http.MethodHead:
		d, err := r.store.Resolve(n)
		var data []byte
		if err == nil {
			data, err = r.store.read(d.Digest)
		}
		if err != nil {
			r.fail(w, req, err, "MANIFEST_UNKNOWN", n.String()+" is not here")
			return
		}
		header(w, d.MediaType, d.Digest, int64(len(data)))
		if req.Method == http.MethodGet {
			w.Write(data)
		}
	case http.MethodPut:
		r.putManifest(w, req, n)
	case http.MethodDelete:
		if err := r.store.Remove(req.Context(), n); err != nil {
			r.fail(w, req, err, "MANIFEST_UNKNOWN", n.String()+" is not here")
			return
		}
		w.WriteHeader(http.StatusAccepted)
	default:
		notAllowed(w)
	}
}

func (r *registry) putManifest(w http.ResponseWriter, req *http.Request, n Name) {
	data, err := readAll(req.Body, maxManifest)
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "MANIFEST_INVALID", err.Error())
		return
	}
	d, err := r.store.putManifest(req.Context(), n, req.Header.Get("Content-Type"), data)
	var missing missingError
	var io *fs.PathError
	switch {
	case errors.As(err, &missing):
		refuse(w, http.StatusNotFound, "MANIFEST_BLOB_UNKNOWN", err.Error())
	case errors.Is(err, errMismatch):
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", err.Error())
	case errors.As(err, &io):
		r.fail(w, req, err, "", "")
	case err != nil:
		refuse(w, http.StatusBadRequest, "MANIFEST_INVALID", err.Error())
	default:
		created(w, req, "manifests", d.Digest)
	}
}

func (r *registry) blob(w http.ResponseWriter, req *http.Request, n Name) {
	switch {
	case n.Digest == "":
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", "blobs are named by digest")
	case req.Method == http.MethodHead:
		size, err := r.store.has(n.Digest)
		if err == nil {
			err = r.store.touch(n.Digest)
		}
		if err != nil {
			r.fail(w, req, err, "BLOB_UNKNOWN", string(n.Digest)+" is not here")
			return
		}
		header(w, "application/octet-stream", n.Digest, size)
	case req.Method == http.MethodGet:
		f, err := r.store.open(n.Digest)
		if err != nil {
			r.fail(w, req, err, "BLOB_UNKNOWN", string(n.Digest)+" is not here")
			return
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			r.fail(w, req, err, "", "")
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Docker-Content-Digest", string(n.Digest))
		w.Header().Set("Etag", `"`+string(n.Digest)+`"`)
		http.ServeContent(w, req, "", info.ModTime(), f) // handles ranges, and copies within the kernel
	default:
		notAllowed(w)
	}
}

func (r *registry) tags(w http.ResponseWriter, req *http.Request, n Name) {
	if req.Method != http.MethodGet {
		notAllowed(w)
		return
	}
	images, err := r.store.List()
	if err != nil {
		r.fail(w, req, err, "", "")
		return
	}
	var all []string
	found := false
	for _, i := range images {
		if i.Name.Registry == n.Registry && i.Name.Repository == n.Repository {
			if found = true; i.Name.Tag != "" {
				all = append(all, i.Name.Tag)
			}
		}
	}
	if !found {
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN", n.Registry+"/"+n.Repository+" is not here")
		return
	}
	page, err := onePage(w, req, all)
	if err != nil {
		refuse(w, http.StatusBadRequest, "UNSUPPORTED", err.Error())
		return
	}
	answer(w, http.StatusOK, map[string]any{"name": n.Repository, "tags": page})
}

func (r *registry) catalog(w http.ResponseWriter, req *http.Request) {
	images, err := r.store.List()
	if err != nil {
		r.fail(w, req, err, "", "")
		return
	}
	var all []string
	for _, i := range images {
		all = append(all, strings.TrimPrefix(i.Name.Registry+"/"+i.Name.Repository, dockerHub+"/"))
	}
	slices.Sort(all)
	page, err := onePage(w, req, slices.Compact(all))
	if err != nil {
		refuse(w, http.StatusBadRequest, "UNSUPPORTED", err.Error())
		return
	}
	answer(w, http.StatusOK, map[string]any{"repositories": page})
}

// onePage returns the page of a list that a request asks for: at most n names, after last.
func onePage(w http.ResponseWriter, req *http.Request, all []string) ([]string, error) {
	q := req.URL.Query()
	if last := q.Get("last"); last != "" {
		i, found := slices.BinarySearch(all, last)
		if found {
			i++
		}
		all = all[i:]
	}
	if q.Get("n") != "" {
		n, err := strconv.Atoi(q.Get("n"))
		if err != nil || n < 0 {
			return nil, fmt.Errorf("n=%q is not a number of names", q.Get("n"))
		}
		if n < len(all) {
			all = all[:n]
			if n > 0 {
				q.Set("last", all[n-1])
				w.Header().Set("Link", fmt.Sprintf("<%s?%s>; rel=\"next\"", req.URL.Path, q.Encode()))
			}
		}
	}
	return append([]string{}, all...), nil
}

// fail sends an error: 404 with code and message for what the store does not have, and 500 for others, which are logged.
func (r *registry) fail(w http.ResponseWriter, req *http.Request, err error, code, message string) {
	if code != "" && errors.Is(err, errUnknown) {
		var path *fs.PathError
		if !errors.As(err, &path) { // not only a file that does not exist
			r.log.Warn("failed to serve a request of the image registry", "path", req.URL.Path, "error", err)
		}
		refuse(w, http.StatusNotFound, code, message)
		return
	}
	r.log.Error("image registry", "method", req.Method, "path", req.URL.Path, "error", err)
	refuse(w, http.StatusInternalServerError, "UNKNOWN", err.Error())
}

func header(w http.ResponseWriter, mediaType string, d Digest, size int64) {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", string(d))
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
}

// created sends 201 with the location of a new blob or manifest.
func created(w http.ResponseWriter, req *http.Request, kind string, d Digest) {
	w.Header().Set("Location", within(req, kind+"/"+string(d)))
	w.Header().Set("Docker-Content-Digest", string(d))
	w.WriteHeader(http.StatusCreated)
}

// within returns the path of something in the repository of a request.
func within(req *http.Request, what string) string {
	path := req.URL.Path
	if i := max(strings.LastIndex(path, "/blobs/"), strings.LastIndex(path, "/manifests/")); i >= 0 {
		path = path[:i]
	}
	if ns := req.URL.Query().Get("ns"); ns != "" {
		what += "?ns=" + url.QueryEscape(ns)
	}
	return path + "/" + what
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(body)
}

func notAllowed(w http.ResponseWriter) {
	refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED", "this cannot be done here")
}

// refuse sends an error in the format of the OCI distribution specification.
func refuse(w http.ResponseWriter, status int, code, message string) {
	type problem struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	answer(w, status, map[string][]problem{"errors": {{code, message}}})
}
