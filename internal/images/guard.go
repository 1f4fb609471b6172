package images

import (
	"crypto/sha256"
	"crypto/subtle"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// limits bound how long a client may take.
type limits struct {
	bodyIdle  time.Duration // without a byte of a request's body
	bodyTime  time.Duration // for the whole body of a request
	writeIdle time.Duration // until a part of a response is received
	bodyRest  time.Duration // for the rest of a body that is not read
}

var defaultLimits = limits{bodyIdle: time.Minute, bodyTime: time.Hour, writeIdle: time.Minute, bodyRest: 5 * time.Second}

// guard passes on only requests with one of the registry's own host names and its credentials, and bounds the time that each may take.
type guard struct {
	next               http.Handler
	hosts              map[string]bool // host:port as clients may write it
	username, password [sha256.Size]byte
	limits             limits
}

func newGuard(next http.Handler, hosts []string, port, username, password string) *guard {
	g := &guard{next: next, hosts: map[string]bool{}, username: sha256.Sum256([]byte(username)), password: sha256.Sum256([]byte(password)), limits: defaultLimits}
	for _, host := range hosts {
		g.hosts[canonicalHost(net.JoinHostPort(host, port))] = true
	}
	return g
}

// canonicalHost returns a Host header with the name in lower case and an address in its usual form.
func canonicalHost(host string) string {
	if a, err := netip.ParseAddrPort(host); err == nil {
		return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String()
	}
	return strings.ToLower(host)
}

func (g *guard) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	control := http.NewResponseController(w)
	// The deadlines of a connection outlast a request: they are set for sending the response and for the rest of the body, which net/http reads.
	settle := func() {
		now := time.Now()
		_, _ = control.SetWriteDeadline(now.Add(g.limits.writeIdle)), control.SetReadDeadline(now.Add(g.limits.bodyRest)) // fails only if the connection is closed
	}
	switch {
	case !g.hosts[canonicalHost(req.Host)]: // DNS rebinding: a browser sends the name that it was given
		settle()
		w.Header().Set("Connection", "close")
		refuse(w, http.StatusMisdirectedRequest, "DENIED", "the registry is not known by the host that the request names")
	case !g.authenticated(req):
		settle()
		w.Header().Set("Connection", "close")
		w.Header().Set("WWW-Authenticate", `Basic realm="skiff image registry"`)
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "the registry asks for the user and password that are in <data-dir>/registry on the node")
	default:
		defer settle()
		req.Body = &body{ReadCloser: req.Body, control: control, idle: g.limits.bodyIdle, until: time.Now().Add(g.limits.bodyTime)}
		g.next.ServeHTTP(&response{ResponseWriter: w, control: control, idle: g.limits.writeIdle}, req)
	}
}

// authenticated reports whether a request has the credentials. It compares hashes in constant time, so that the time depends neither on the content nor on the length of the password.
func (g *guard) authenticated(req *http.Request) bool {
	username, password, ok := req.BasicAuth()
	u, p := sha256.Sum256([]byte(username)), sha256.Sum256([]byte(password))
	return ok && subtle.ConstantTimeCompare(u[:], g.username[:])&subtle.ConstantTimeCompare(p[:], g.password[:]) == 1
}

// body is a request's body, whose reads fail when the client stalls or takes too long.
type body struct {
	io.ReadCloser
	control *http.ResponseController
	idle    time.Duration
	until   time.Time
}

func (b *body) Read(p []byte) (int, error) {
	deadline := time.Now().Add(b.idle)
	if b.until.Before(deadline) {
		deadline = b.until
	}
	if err := b.control.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF { // net/http goes on reading, to notice when the client closes the connection
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// response is a response, whose writes fail when the client does not receive it.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	idle    time.Duration
}

func (r *response) Write(b []byte) (int, error) {
	if err := r.control.SetWriteDeadline(time.Now().Add(r.idle)); err != nil {
		return 0, err
	}
	return r.ResponseWriter.Write(b)
}
