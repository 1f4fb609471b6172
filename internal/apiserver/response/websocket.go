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

// Browsers cannot read an answer bit by bit as well as others can, so watches and logs are also served over WebSockets. Streams to and from
// containers are too, but that is between the client and the kubelet: see special_connect.go.

// webSocketGoodbye is how long the client may take to be told that its WebSocket is closed.
const webSocketGoodbye = time.Second

// WantsWebSocket reports whether the client asks to change from HTTP to a WebSocket.
func (rs *Responder) WantsWebSocket() bool {
	return strings.EqualFold(rs.Header.Get("Upgrade"), "websocket") &&
		slices.ContainsFunc(rs.Header["Connection"], func(h string) bool { return strings.Contains(strings.ToLower(h), "upgrade") })
}

// WebSocket makes the connection a WebSocket and returns when talk does. Nothing is expected from the client; when it leaves, or the server
// stops, the context of talk ends. A client that handshake refuses is told so, without a Status, since by then the connection is out of
// HTTP's hands.
func (rs *Responder) WebSocket(ctx context.Context, handshake func(*websocket.Config, *http.Request) error, talk func(context.Context, *websocket.Conn)) error {
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
			_ = ws.SetDeadline(time.Now().Add(webSocketGoodbye))
			_ = ws.Close()
		}()
		talk(ctx, ws)
	}}
	server.ServeHTTP(hijacked{rs.W, conn, buf}, rs.Request)
	return nil
}

// hijacked is a connection that was taken from HTTP already, as the library wants to see it.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
	buf  *bufio.ReadWriter
}

// Hijack implements http.Hijacker.
func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) { return h.conn, h.buf, nil }

// fromSomewhere accepts clients that say what page they belong to, as browsers do. It does not matter which.
func fromSomewhere(config *websocket.Config, r *http.Request) error {
	origin, err := websocket.Origin(config, r)
	if err == nil && origin == nil {
		err = errors.New("no origin")
	}
	config.Origin = origin
	return err
}

// The subprotocols in which bytes are sent: as they are, or, for clients that only take text, in base64.
const (
	plainBytes = "binary.k8s.io"
	textBytes  = "base64.binary.k8s.io"
)

// AsBytes settles on a subprotocol to send bytes in. Clients that ask for none get them as they are.
func AsBytes(config *websocket.Config, _ *http.Request) error {
	if len(config.Protocol) == 0 {
		config.Protocol = []string{""}
	}
	for _, p := range config.Protocol {
		if p == "" || p == plainBytes || p == textBytes {
			config.Protocol = []string{p}
			return nil
		}
	}
	return fmt.Errorf("none of the subprotocols %q is known", config.Protocol)
}

// CopyToWebSocket sends what it reads, piece by piece as it comes. The first message is empty: it says that there will be others.
func CopyToWebSocket(ws *websocket.Conn, from io.Reader) {
	send := func(b []byte) error {
		if err := ws.SetWriteDeadline(time.Now().Add(stuckAfter)); err != nil {
			return err
		}
		if ws.Config().Protocol[0] == textBytes {
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

// eventSocket sends watch events over a WebSocket, each in a message.
type eventSocket struct {
	ws   *websocket.Conn
	text bool // the events are text; otherwise each begins with its length, which messages have themselves
}

func (s *eventSocket) send(event []byte) error {
	if s.text {
		return websocket.Message.Send(s.ws, string(event))
	}
	return websocket.Message.Send(s.ws, event[frameLength:])
}
