// Package http2 serves HTTP/2 over TLS for an http.Handler. net/http accepts connections, speaks TLS and HTTP/1.1 and stops the server;
// connections that agree on "h2" come here.
//
// Why not net/http's own: an API server sends many small responses and many long streams over few connections, and there most of the time went into moving frames
// between goroutines and into one TLS record and one system call per frame (docs/decisions/0006). Frames and header compression are golang.org/x/net's, as are the
// checks of what a client may send; this package is how a connection runs:
//
//   - One goroutine reads frames (conn.go). Each request's handler runs in one of its own (workers.go, stream.go, request.go, response.go).
//   - A handler copies what it sends into the connection's queue, and if no other goroutine is writing, writes it (queue.go). What others queue meanwhile is
//     sent with the next write, many frames to a TLS record and many records to a system call.
//   - The queue is bounded, and so are a client's requests in flight: a handler that finds no room waits.
//   - On Linux, sockets are read and written by raw system calls (socket_linux.go), and the reader coalesces WINDOW_UPDATE frames and bursts of requests
//     (coalesce.go). Options.PlainSockets turns both off; its comment has their measured worth.
//
// It must not import anything else of skiff: the API server is an http.Handler like any other.
package http2
