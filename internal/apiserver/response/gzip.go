package response

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// compressAbove is the size from which answers are compressed for clients that ask.
const compressAbove = 128 << 10

var gzips = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return z
}}

// compressed returns where to write an answer of the given size. Compression costs more than copying where the peer is on this
// machine, so it is not done there.
func (rs *Responder) compressed(size int) (io.Writer, func()) {
	if size < compressAbove || !acceptsGzip(rs.Request) || fromThisHost(rs.Request) {
		return rs.W, func() {}
	}
	z := gzips.Get().(*gzip.Writer)
	z.Reset(rs.W)
	sayZipped(rs.W.Header())
	return z, func() {
		_ = z.Close()
		gzips.Put(z)
	}
}

func sayZipped(h http.Header) {
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
}

func acceptsGzip(r *http.Request) bool {
	for _, part := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" || name == "*" {
			return true
		}
	}
	return false
}

func fromThisHost(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return true // no network in between
	}
	ip := net.ParseIP(host)
	if ip.IsLoopback() {
		return true
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return local != nil && local.IP.Equal(ip)
}
