package response

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Watches and logs are also served over WebSockets, which browsers can read message by message. Streams to and from containers are too, but those are
// between the client and the kubelet: see package subresources.

// webSocketCloseTimeout is how long sending the close message may take.
const webSocketCloseTimeout = time.Second

// WantsWebSocket reports whether the client asks to change from HTTP to a WebSocket.
func (rs *Responder) WantsWebSocket() bool {
	return strings.EqualFold(rs.Header.Get("Upgrade"), "websocket") &&
		slices.ContainsFunc(rs.Header["Connection"], func(h string) bool { return strings.Contains(strings.ToLower(h), "upgrade") })
}

// WebSocket upgrades the connection to a WebSocket and returns when serve does. What the client sends is discarded; when it disconnects, or the server
// stops, the context of serve ends. A client that handshake refuses gets no Status, since the connection has been hijacked from HTTP by then.
func (rs *Responder) WebSocket(ctx context.Context, handshake func(*websocket.Config, *http.Request) error, serve func(context.Context, *websocket.Conn)) error {
	conn, buf, err := http.NewResponseController(rs.W).Hijack()
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("this connection cannot become a WebSocket: %v", err))
	}
	server := websocket.Server{Handshake: handshake, Handler: func(ws *websocket.Conn) {
		ctx, cancel := context.WithCancel(ctx)
		defer context.AfterFunc(rs.Shared.Stopping, cancel)()
		var listening sync.WaitGroup
		listening.Go(func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, ws)
		})
		defer listening.Wait()
		defer func() {
			_ = ws.SetDeadline(time.Now().Add(webSocketCloseTimeout))
			_ = ws.Close()
		}()
		serve(ctx, ws)
	}}
	server.ServeHTTP(hijacked{rs.W, conn, buf}, rs.Request)
	return nil
}

// hijacked is the http.Hijacker of a connection that was hijacked before, for the WebSocket library.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
	buf  *bufio.ReadWriter
}

// Hijack implements http.Hijacker.
func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, h.buf, nil }

// requireOrigin is a handshake that accepts clients with an Origin header, as browsers send it, whatever it says.
func requireOrigin(config *websocket.Config, r *http.Request) error {
	origin, err := websocket.Origin(config, r)
	if err == nil && origin == nil {
		err = errors.New("no origin")
	}
	config.Origin = origin
	return err
}

// The subprotocols in which bytes are sent: as they are, or in base64 for clients that only take text.
const (
	binaryProtocol = "binary.k8s.io"
	base64Protocol = "base64.binary.k8s.io"
)

// BinaryProtocol is a handshake that chooses the subprotocol in which bytes are sent. Clients that ask for none get them as they are.
func BinaryProtocol(config *websocket.Config, _ *http.Request) error {
	if len(config.Protocol) == 0 {
		config.Protocol = []string{""}
	}
	for _, p := range config.Protocol {
		if p == "" || p == binaryProtocol || p == base64Protocol {
			config.Protocol = []string{p}
			return nil
		}
	}
	return fmt.Errorf("none of the subprotocols %q is known", config.Protocol)
}

// CopyToWebSocket sends what it reads, each read in a message. The first message is empty, as upstream: it tells the client that others follow.
func CopyToWebSocket(ws *websocket.Conn, from io.Reader) {
	send := func(b []byte) error {
		if err := ws.SetWriteDeadline(time.Now().Add(watchStallTimeout)); err != nil {
			return err
		}
		if ws.Config().Protocol[0] == base64Protocol {
			return websocket.Message.Send(ws, base64.StdEncoding.EncodeToString(b))
		}
		return websocket.Message.Send(ws, b)
	}
	if send(nil) != nil {
		return
	}
	for buf := make([]byte, 2048); ; {
		n, err := from.Read(buf)
		if n > 0 && send(buf[:n]) != nil || err != nil {
			return
		}
	}
}

// eventSocket sends watch events over a WebSocket, each in a message of its own.
type eventSocket struct {
	ws   *websocket.Conn
	text bool // the events are JSON; those in protobuf begin with their length, which a message does not need
}

func (s *eventSocket) send(event []byte) error {
	if s.text {
		return websocket.Message.Send(s.ws, string(event))
	}
	return websocket.Message.Send(s.ws, event[frameLengthSize:])
}
