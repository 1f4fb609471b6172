package response

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// minCompressedSize is the size from which responses are compressed for clients that accept it, as upstream.
const minCompressedSize = 128 << 10

var gzips = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return z
}}

// compressed returns where to write a response of the given size: to the client, or through gzip. A client on this machine gets it uncompressed: that
// costs less than compressing.
func (rs *Responder) compressed(size int) (io.Writer, func()) {
	if size < minCompressedSize || !acceptsGzip(rs.Request) || fromThisHost(rs.Request) {
		return rs.W, func() {}
	}
	z := gzips.Get().(*gzip.Writer)
	z.Reset(rs.W)
	setGzipHeaders(rs.W.Header())
	return z, func() {
		_ = z.Close()
		gzips.Put(z)
	}
}

func setGzipHeaders(h http.Header) {
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
}

// acceptsGzip reports whether the Accept-Encoding of a request has gzip.
func acceptsGzip(r *http.Request) bool {
	for _, part := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" || name == "*" {
			return true
		}
	}
	return false
}

// fromThisHost reports whether the client is on this machine or in this process.
func fromThisHost(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return true // in process
	}
	ip := net.ParseIP(host)
	if ip.IsLoopback() {
		return true
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return local != nil && local.IP.Equal(ip)
}
