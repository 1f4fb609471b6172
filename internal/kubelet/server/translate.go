package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// The newest protocol of WebSockets has a channel per stream: each message begins with the number of its channel, and one that begins with 255
// closes the channel that it names, so that a process can be told that its input has ended. Messages on the channel of errors hold a Status, as
// they do in the newest protocol of SPDY: so translating is copying.

const (
	// pingInterval keeps the connection to the runtime from looking idle.
	pingInterval = 5 * time.Second
	// closeTimeout is how long a client may take to close a WebSocket after the last message.
	closeTimeout = 2 * time.Second
	// maxStatus bounds what a process's end may say.
	maxStatus = 1 << 20
	copySize  = 32 << 10
)

// translate serves a process's streams over a WebSocket.
func (s *Server) translate(w http.ResponseWriter, rq *http.Request, location *url.URL, st streams) {
	ctx, cancel := s.withStop(rq)
	defer cancel()
	server := websocket.Server{
		Handshake: func(c *websocket.Config, _ *http.Request) error { return choose(c, remotecommand.StreamProtocolV5Name) },
		Handler: func(ws *websocket.Conn) {
			t := &translation{ws: ws, streams: st}
			t.serve(ctx, location)
		},
	}
	server.ServeHTTP(w, rq)
}

// choose takes the one protocol there is of those that a client offers.
func choose(c *websocket.Config, protocol string) error {
	if !slices.Contains(c.Protocol, protocol) {
		return fmt.Errorf("requested protocol(s) are not supported: %v; supports %v", c.Protocol, protocol)
	}
	c.Protocol = []string{protocol}
	return nil
}

// translation is one WebSocket whose channels are streams of a SPDY connection.
type translation struct {
	ws      *websocket.Conn
	streams streams
	ending  atomic.Bool
}

func (t *translation) serve(ctx context.Context, location *url.URL) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.ws.PayloadType = websocket.BinaryFrame
	// The client knows by this that it is connected.
	hello := byte(remotecommand.StreamErr)
	switch {
	case t.streams.stdout:
		hello = remotecommand.StreamStdOut
	case t.streams.stderr:
		hello = remotecommand.StreamStdErr
	}
	if t.send([]byte{hello}) != nil {
		_ = t.ws.Close()
		return
	}
	p, err := connect(ctx, location, t.streams)
	var input sync.WaitGroup
	var outcome []byte
	if err == nil {
		input.Go(func() {
			t.receive(p)
			_ = p.connection.Close() // the client is gone
		})
		end := context.AfterFunc(ctx, func() { _ = p.connection.Close() })
		outcome, err = t.output(p)
		end()
		_ = p.connection.Close()
	} else {
		input.Go(func() { t.receive(&process{}) })
	}
	if err != nil {
		if outcome, err = json.Marshal(apierrors.NewInternalError(err).Status()); err != nil {
			outcome = nil // which is a failure too
		}
	}
	_ = t.send(append([]byte{remotecommand.StreamErr}, outcome...))
	t.end(&input)
}

// end closes the WebSocket in peace: to close it while the client still sends would take from it what it has not read yet.
func (t *translation) end(input *sync.WaitGroup) {
	t.ending.Store(true)
	_ = t.ws.SetDeadline(time.Now().Add(closeTimeout))
	_ = t.ws.WriteClose(1000)
	input.Wait()
	_ = t.ws.Close()
}

// send sends a message, the first byte of which is its channel.
func (t *translation) send(message []byte) error {
	if err := t.ws.SetWriteDeadline(time.Now().Add(maxRequestDuration)); err != nil {
		return err
	}
	return websocket.Message.Send(t.ws, message)
}

// receive passes on what the client sends, until it leaves or nothing more is awaited from it.
func (t *translation) receive(to *process) {
	for {
		if !t.ending.Load() {
			_ = t.ws.SetReadDeadline(time.Now().Add(maxRequestDuration))
		}
		var message []byte
		if err := websocket.Message.Receive(t.ws, &message); err != nil {
			return
		}
		// A process that does not take its input any more may still have something to say.
		switch {
		case len(message) == 0:
		case message[0] == remotecommand.StreamClose:
			if len(message) == 2 && message[1] == remotecommand.StreamStdIn && to.stdin != nil {
				_ = to.stdin.Close()
				to.stdin = nil
			}
		case message[0] == remotecommand.StreamStdIn && to.stdin != nil:
			_, _ = to.stdin.Write(message[1:])
		case message[0] == remotecommand.StreamResize && to.resize != nil:
			_, _ = to.resize.Write(message[1:])
		}
	}
}

// output sends what the process writes, until its end, and returns what is said of that.
func (t *translation) output(from *process) (outcome []byte, err error) {
	var outputs sync.WaitGroup
	for channel, stream := range map[byte]httpstream.Stream{remotecommand.StreamStdOut: from.stdout, remotecommand.StreamStdErr: from.stderr} {
		if stream != nil {
			outputs.Go(func() { t.copy(channel, stream, from.connection) })
		}
	}
	outcome, err = io.ReadAll(io.LimitReader(from.errors, maxStatus))
	outputs.Wait()
	if err == nil && len(outcome) == 0 {
		err = errors.New("the container runtime ended the connection")
	}
	return outcome, err
}

func (t *translation) copy(channel byte, from io.Reader, connection io.Closer) {
	buf := make([]byte, copySize)
	buf[0] = channel
	for {
		n, err := from.Read(buf[1:])
		if n > 0 && t.send(buf[:n+1]) != nil {
			_ = connection.Close() // the client is gone
		}
		if err != nil {
			return
		}
	}
}

// process is a process in a container whose streams the runtime serves. Those that nobody wanted are nil.
type process struct {
	connection                            httpstream.Connection
	stdin, stdout, stderr, errors, resize httpstream.Stream
}

// connect connects with a process. Its errors are for whoever asked for it.
func connect(ctx context.Context, location *url.URL, want streams) (*process, error) {
	tripper, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{PingPeriod: pingInterval, Proxier: func(*http.Request) (*url.URL, error) { return nil, nil }})
	if err != nil {
		return nil, err
	}
	rq, err := http.NewRequestWithContext(ctx, http.MethodPost, location.String(), nil)
	if err != nil {
		return nil, err
	}
	rq.Header.Set(httpstream.HeaderProtocolVersion, remotecommand.StreamProtocolV4Name)
	rs, err := tripper.RoundTrip(rq) // which follows no redirect
	if err != nil {
		return nil, fmt.Errorf("failed to connect to the container runtime: %w", err)
	}
	defer rs.Body.Close()
	connection, err := tripper.NewConnection(rs)
	if err != nil {
		return nil, err
	}
	p := &process{connection: connection}
	for _, s := range []struct {
		name   string
		wanted bool
		to     *httpstream.Stream
	}{{"error", true, &p.errors}, {"stdin", want.stdin, &p.stdin}, {"stdout", want.stdout, &p.stdout}, {"stderr", want.stderr, &p.stderr}, {"resize", want.tty, &p.resize}} {
		if !s.wanted {
			continue
		}
		if *s.to, err = connection.CreateStream(http.Header{"Streamtype": {s.name}}); err != nil {
			_ = connection.Close()
			return nil, fmt.Errorf("failed to open the %s stream: %w", s.name, err)
		}
	}
	return p, nil
}
