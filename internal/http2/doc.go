// Package http2 serves HTTP/2 over TLS for an http.Handler. net/http accepts connections, speaks TLS and HTTP/1.1 and stops the server;
// connections that agree on "h2" come here.
//
// Why not net/http's own: an API server's day is many small answers and many long streams over few connections, and there most of the
// time went into moving frames between goroutines and into one TLS record and one system call per frame (docs/decisions/0006).
// Frames and header compression are golang.org/x/net's, as are the checks of what a client may send; here is how a connection runs:
//
//   - One goroutine reads frames (conn.go). Each request's handler runs in one of its own (stream.go, request.go, response.go).
//   - Whoever has something to send copies it into the connection's queue, and if nobody is writing, writes (queue.go). What others queue
//     meanwhile goes out with the next write, many frames to a TLS record and many records to a system call.
//   - Sockets are read and written without telling Go's scheduler of it, as they never block (socket_linux.go).
//   - A reader that hears of nothing but the client's windows, or finds several requests whenever it looks, lets them gather for a moment (lazy.go).
//   - The queue is bounded, and so is what a client may have under way: those who find no room wait in line.
package http2
