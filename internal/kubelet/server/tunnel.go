package server

import (
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/apimachinery/pkg/util/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"skiff/internal/upgrade"
)

// runtimeTransport reaches the container runtime on this machine. It follows no redirect and uses no proxy.
var runtimeTransport = &http.Transport{DialContext: upgrade.Dial((&net.Dialer{Timeout: 10 * time.Second}).DialContext),
	DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: 30 * time.Second}

// tunnel carries the SPDY connection of a port forwarding in the messages of a WebSocket. The runtime is asked first: what it refuses, the client
// is refused.
func (s *Server) tunnel(w http.ResponseWriter, rq *http.Request, location *url.URL) {
	ctx, cancel := s.withStop(rq)
	defer cancel()
	ask, err := http.NewRequestWithContext(ctx, http.MethodPost, location.String(), nil)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	ask.Header = http.Header{httpstream.HeaderConnection: {httpstream.HeaderUpgrade}, httpstream.HeaderUpgrade: {spdy.HeaderSpdy31},
		httpstream.HeaderProtocolVersion: tunnelled(rq)}
	answer, err := runtimeTransport.RoundTrip(ask)
	if err != nil {
		fail(w, http.StatusInternalServerError, "connecting with the container runtime: "+err.Error())
		return
	}
	defer answer.Body.Close()
	backend, ok := answer.Body.(io.ReadWriteCloser)
	if answer.StatusCode != http.StatusSwitchingProtocols || !ok {
		if answer.StatusCode/100 == 3 {
			fail(w, http.StatusBadGateway, "the container runtime answered with a redirect")
			return
		}
		maps.Copy(w.Header(), answer.Header)
		w.WriteHeader(answer.StatusCode)
		_, _ = io.Copy(w, io.LimitReader(answer.Body, maxStatus))
		return
	}
	chosen := portforward.WebsocketsSPDYTunnelingPrefix + answer.Header.Get(httpstream.HeaderProtocolVersion)
	server := websocket.Server{
		Handshake: func(c *websocket.Config, _ *http.Request) error { return choose(c, chosen) },
		Handler: func(ws *websocket.Conn) {
			ws.PayloadType = websocket.BinaryFrame
			var backwards sync.WaitGroup
			backwards.Go(func() {
				_, _ = io.CopyBuffer(ws, onlyReader{backend}, make([]byte, copySize))
				_ = ws.Close()
			})
			defer backwards.Wait()
			defer backend.Close()
			_, _ = io.CopyBuffer(backend, onlyReader{ws}, make([]byte, copySize))
		},
	}
	server.ServeHTTP(w, rq)
}

// onlyReader hides what else a connection can do, so that io.Copy goes by the buffer it was given.
type onlyReader struct{ io.Reader }

// tunnelled returns the protocols that a client wants to speak in a tunnel.
func tunnelled(rq *http.Request) (protocols []string) {
	for _, header := range rq.Header.Values("Sec-Websocket-Protocol") {
		for p := range strings.SplitSeq(header, ",") {
			p, found := strings.CutPrefix(strings.TrimSpace(p), portforward.WebsocketsSPDYTunnelingPrefix)
			if found && strings.HasSuffix(p, portforward.KubernetesSuffix) {
				protocols = append(protocols, p)
			}
		}
	}
	return protocols
}
