package images

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// maxUploads bounds the uploads in progress.
	maxUploads = 128
	// idleUpload is after how long without a request an upload is abandoned.
	idleUpload = 10 * time.Minute
)

// uploads are the uploads in progress. They last as long as the process; a client whose upload is unknown begins again.
type uploads struct {
	mu   sync.Mutex
	byID map[string]*upload
}

// upload is the upload of a blob, in one or several requests, one after the other.
type upload struct {
	busy sync.Mutex
	part *part // nil once it is kept or abandoned
	used time.Time
}

var errTooMany = errors.New("too many uploads are in progress")

func (u *uploads) begin(s *Store, now time.Time) (string, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, old := range u.byID {
		if now.Sub(old.used) > idleUpload && old.busy.TryLock() {
			old.part.drop()
			old.part = nil
			old.busy.Unlock()
			delete(u.byID, id)
		}
	}
	if len(u.byID) >= maxUploads {
		return "", errTooMany
	}
	p, err := s.newPart()
	if err != nil {
		return "", err
	}
	id := rand.Text()
	u.byID[id] = &upload{part: p, used: now}
	return id, nil
}

// take returns an upload for one request, until release. Another request for it meanwhile finds none.
func (u *uploads) take(id string) (up *upload, release func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	up = u.byID[id]
	if up == nil || !up.busy.TryLock() {
		return nil, nil
	}
	up.used = time.Now()
	return up, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if up.used = time.Now(); up.part == nil {
			delete(u.byID, id)
		}
		up.busy.Unlock()
	}
}

// close abandons all uploads. Requests in flight abandon theirs themselves.
func (u *uploads) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, up := range u.byID {
		if up.busy.TryLock() {
			up.part.drop()
			delete(u.byID, id)
		}
	}
}

// upload serves the requests for an upload, or those that begin one.
func (r *registry) upload(id string) func(http.ResponseWriter, *http.Request, Name) {
	return func(w http.ResponseWriter, req *http.Request, n Name) {
		if id == "" {
			if req.Method == http.MethodPost {
				r.beginUpload(w, req, n)
			} else {
				notAllowed(w)
			}
			return
		}
		up, release := r.uploads.take(id)
		if up == nil {
			refuse(w, http.StatusNotFound, "BLOB_UPLOAD_UNKNOWN", "there is no such upload, or it is in use")
			return
		}
		defer release()
		switch req.Method {
		case http.MethodGet:
			r.uploadState(w, req, id, up, http.StatusNoContent)
		case http.MethodPatch:
			if r.receive(w, req, up) {
				r.uploadState(w, req, id, up, http.StatusAccepted)
			}
		case http.MethodPut:
			if r.receive(w, req, up) {
				r.finishUpload(w, req, up)
			}
		case http.MethodDelete:
			up.part.drop()
			up.part = nil
			w.WriteHeader(http.StatusNoContent)
		default:
			notAllowed(w)
		}
	}
}

// beginUpload serves POST: a blob that the store has needs no upload, and one that is sent whole with the request is stored at once.
func (r *registry) beginUpload(w http.ResponseWriter, req *http.Request, n Name) {
	q := req.URL.Query()
	if d, err := ParseDigest(q.Get("mount")); err == nil && r.store.touch(d) == nil {
		created(w, req, "blobs", d)
		return
	}
	id, err := r.uploads.begin(r.store, time.Now())
	if errors.Is(err, errTooMany) {
		refuse(w, http.StatusTooManyRequests, "TOOMANYREQUESTS", err.Error())
		return
	}
	if err != nil {
		r.fail(w, req, err, "", "")
		return
	}
	up, release := r.uploads.take(id)
	defer release()
	if q.Get("digest") == "" {
		r.uploadState(w, req, id, up, http.StatusAccepted)
	} else if r.receive(w, req, up) {
		r.finishUpload(w, req, up)
	}
}

// receive adds the body of a request to an upload.
func (r *registry) receive(w http.ResponseWriter, req *http.Request, up *upload) bool {
	if ranges := req.Header.Get("Content-Range"); ranges != "" {
		var from, to int64
		if _, err := fmt.Sscanf(ranges, "%d-%d", &from, &to); err != nil || from != up.part.size {
			refuse(w, http.StatusRequestedRangeNotSatisfiable, "BLOB_UPLOAD_INVALID", fmt.Sprintf("%d bytes are here; the next must follow them", up.part.size))
			return false
		}
	}
	if _, err := io.Copy(up.part, req.Body); err != nil {
		up.part.drop()
		up.part = nil
		r.log.Warn("failed to receive an upload of the image registry", "path", req.URL.Path, "error", err)
		refuse(w, http.StatusBadRequest, "BLOB_UPLOAD_INVALID", err.Error())
		return false
	}
	return true
}

func (r *registry) finishUpload(w http.ResponseWriter, req *http.Request, up *upload) {
	want, err := ParseDigest(req.URL.Query().Get("digest"))
	if err != nil {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", err.Error())
		return
	}
	d, err := up.part.keep(want)
	up.part = nil
	switch {
	case errors.Is(err, errMismatch):
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID", err.Error())
	case err != nil:
		r.fail(w, req, err, "", "")
	default:
		created(w, req, "blobs", d.Digest)
	}
}

func (r *registry) uploadState(w http.ResponseWriter, req *http.Request, id string, up *upload, code int) {
	w.Header().Set("Location", within(req, "blobs/uploads/"+id))
	w.Header().Set("Docker-Upload-UUID", id)
	w.Header().Set("Range", fmt.Sprintf("0-%d", max(0, up.part.size-1)))
	w.WriteHeader(code)
}
