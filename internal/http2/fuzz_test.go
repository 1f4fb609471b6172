package http2

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// FuzzFrames has a client send whatever frames the input says, read by read, to a server whose handlers do all that handlers do. However it goes, when the client has hung up the
// connection ends in time, with its handlers, goroutines, timers and buffers; and never were there more of these than allowed.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x00\x05\x02\x10"))
	f.Add([]byte(strings.Repeat("\x00\x01\x00\x09", 20)))
	f.Add([]byte("\x07\x00\x00\x03\x01\x02\x40\x01\x02\x40\x01\x03\x08"))
	f.Add([]byte("\x04\x04\x00\x00\x02\x03\x00\x03\x03\x03\x00\x05\x03\x04\x02"))
	f.Add([]byte("\x08\x00\x04\x00\x08\x00\x04\x00\x08"))
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 4<<10 {
			return // longer ones only take longer
		}
		newFuzzed(t).run(input)
	})
}

const (
	fuzzStreams = 8
	fuzzStall   = 5 * time.Millisecond
	fuzzTime    = 20 * time.Second // far more than a run takes on a loaded machine
)

// fuzzed is one run.
type fuzzed struct {
	t       *testing.T
	conn    *conn
	client  net.Conn
	running atomic.Int32 // handlers
}

// plain is a connection without TLS.
type plain struct{ *recordWriter }

func (p plain) NetConn() net.Conn                  { return p.recordWriter }
func (plain) CloseWrite() error                    { return nil }
func (plain) ConnectionState() tls.ConnectionState { return tls.ConnectionState{} }

func newFuzzed(t *testing.T) *fuzzed {
	r := &fuzzed{t: t}
	here, there := net.Pipe()
	r.client = here
	opts := Options{MaxStreams: fuzzStreams, MaxHeaderBytes: 8 << 10, IdleTimeout: time.Second, WriteTimeout: 2 * fuzzStall, FirstRequestTimeout: time.Second}
	opts.complete()
	server := &http.Server{Handler: http.HandlerFunc(r.handle), ErrorLog: log.New(io.Discard, "", 0)}
	r.conn = newConn(context.Background(), server, plain{&recordWriter{Conn: there}}, opts)
	return r
}

func (r *fuzzed) run(input []byte) {
	before := runtime.NumGoroutine()
	var ended, reading sync.WaitGroup
	done := make(chan struct{})
	ended.Go(func() {
		r.conn.serve()
		close(done)
	})
	deaf := len(input) > 0 && input[0] == 8 // a client that does not read
	if !deaf {
		reading.Go(r.read)
	}
	r.write(input)
	r.client.Close()
	select {
	case <-done:
	case <-time.After(fuzzTime):
		stacks := make([]byte, 1<<20)
		panic("the connection does not end:\n" + string(stacks[:runtime.Stack(stacks, true)]))
	}
	ended.Wait()
	reading.Wait()
	r.check()
	if n := r.running.Load(); n != 0 {
		r.t.Errorf("%d handlers are left", n)
	}
	c := r.conn
	c.mu.Lock()
	if c.runningHandlers != 0 || len(c.streams) != 0 || len(c.waiters) != 0 || c.queue.bytes != 0 || c.writing {
		r.t.Errorf("left behind: %d running, %d streams, %d waiting, %d bytes, writing %v", c.runningHandlers, len(c.streams), len(c.waiters), c.queue.bytes, c.writing)
	}
	c.mu.Unlock()
	for deadline := time.Now().Add(fuzzTime); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			r.t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// read reads what the server sends, and hangs up when told to.
func (r *fuzzed) read() {
	frames := http2.NewFramer(nil, r.client)
	for {
		f, err := frames.ReadFrame()
		if err != nil {
			r.client.Close()
			return
		}
		if away, ok := f.(*http2.GoAwayFrame); ok && away.ErrCode != http2.ErrCodeNo {
			r.client.Close()
			return
		}
	}
}

// check checks that no more is kept than may be.
func (r *fuzzed) check() {
	c := r.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	buffered := 0
	for _, st := range c.streams {
		buffered += st.body.buffered()
	}
	// A header, and what is left of a record, may be added to a queue that is almost full; so may answers to control frames, up to their own limit.
	if most := queueLimit + (fuzzStreams+1)*2*recordSize + maxControl*32; buffered > connWindow || c.queue.bytes > most || c.runningHandlers > fuzzStreams || len(c.waiters) > fuzzStreams {
		r.t.Errorf("%d bytes of bodies, %d queued, %d handlers, %d waiting", buffered, c.queue.bytes, c.runningHandlers, len(c.waiters))
	}
}

// handle does what the path says.
func (r *fuzzed) handle(w http.ResponseWriter, req *http.Request) {
	if r.running.Add(1) > fuzzStreams {
		r.t.Error("too many handlers")
	}
	defer r.running.Add(-1)
	defer r.check()
	w.(*response).LimitWaits(fuzzStall, time.Now().Add(4*fuzzStall), nil)
	for _, do := range strings.Split(req.URL.Path, "/") {
		what, size, _ := strings.Cut(do, "-")
		n, _ := strconv.Atoi(size)
		switch what {
		case "read":
			_, _ = io.Copy(io.Discard, req.Body)
		case "some":
			_, _ = req.Body.Read(make([]byte, n))
		case "write":
			_, _ = w.Write(make([]byte, n))
		case "pieces":
			_ = w.(*response).WriteAll([][]byte{make([]byte, n), nil, make([]byte, n/2)})
		case "flush":
			w.(http.Flusher).Flush()
		case "echo":
			_, _ = io.Copy(w, req.Body)
		case "status":
			w.WriteHeader(200 + n%300)
		case "trailer":
			w.Header().Set(http.TrailerPrefix+"X", "y")
		case "close":
			w.Header().Set("Connection", "close")
		case "panic":
			panic(http.ErrAbortHandler)
		case "deadline":
			_ = w.(*response).SetWriteDeadline(time.Now().Add(fuzzStall))
			_ = w.(*response).SetReadDeadline(time.Now().Add(fuzzStall))
		case "gone":
			select {
			case <-req.Context().Done():
			case <-time.After(fuzzStall):
			}
		}
	}
}

// fuzzPaths are what requests ask for.
var fuzzPaths = []string{"/", "/read", "/write-10", "/write-5000/flush", "/write-200000", "/pieces-90000", "/echo", "/read/write-70000/trailer", "/some-5/panic", "/status-204/write-3",
	"/gone", "/deadline/read/write-100000", "/close", "/flush/gone/write-20000", "/status-104", "/pieces-3/flush/pieces-3"}

// fuzzInput is read byte by byte; after its end there are zeros.
type fuzzInput []byte

func (i *fuzzInput) next() byte {
	if len(*i) == 0 {
		return 0
	}
	b := (*i)[0]
	*i = (*i)[1:]
	return b
}

// write sends the frames that the input stands for, until it ends or the server hangs up.
func (r *fuzzed) write(input fuzzInput) {
	_ = r.client.SetWriteDeadline(time.Now().Add(fuzzTime / 2))
	var out bytes.Buffer
	frames := http2.NewFramer(&out, nil)
	frames.AllowIllegalWrites = true
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	out.WriteString(http2.ClientPreface)
	_ = frames.WriteSettings()
	newest := uint32(1)
	for len(input) > 0 {
		fuzzFrame(frames, &out, encoder, &block, &input, &newest)
		if input.next()%2 == 0 { // otherwise it goes with the next
			if _, err := r.client.Write(out.Bytes()); err != nil {
				return
			}
			out.Reset()
		}
	}
	_, _ = r.client.Write(out.Bytes())
}

// fuzzFrame writes one frame. newest is the stream that was begun last.
func fuzzFrame(frames *http2.Framer, out *bytes.Buffer, encoder *hpack.Encoder, block *bytes.Buffer, input *fuzzInput, newest *uint32) {
	stream := func() uint32 { return uint32(max(int64(*newest)-2*int64(input.next()%8), 0)) }
	size := func() uint32 { return 1 << (input.next() % 32) }
	switch kind := input.next(); kind % 14 {
	case 0, 1, 2: // a request
		how := input.next()
		if how&0x80 == 0 {
			*newest += 2
		}
		block.Reset()
		path := fuzzPaths[input.next()%byte(len(fuzzPaths))]
		for _, f := range [][2]string{{":method", []string{"GET", "POST", "HEAD", "CONNECT"}[how%4]}, {":scheme", "https"}, {":authority", "x"}, {":path", path}} {
			_ = encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		if how&4 != 0 {
			_ = encoder.WriteField(hpack.HeaderField{Name: "content-length", Value: strconv.Itoa(int(input.next()))})
		}
		if how&8 != 0 {
			_ = encoder.WriteField(hpack.HeaderField{Name: "expect", Value: "100-continue"})
		}
		if how&16 != 0 {
			_ = encoder.WriteField(hpack.HeaderField{Name: "x-large", Value: strings.Repeat("x", int(input.next())*64)})
		}
		_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: *newest, BlockFragment: block.Bytes(), EndStream: how&32 == 0, EndHeaders: how&64 == 0})
	case 3:
		_ = frames.WriteData(stream(), input.next()%2 == 0, make([]byte, int(input.next())*64))
	case 4:
		_ = frames.WriteWindowUpdate([]uint32{0, stream()}[input.next()%2], size()&0x7fffffff)
	case 5:
		_ = frames.WriteRSTStream(stream(), http2.ErrCode(input.next()))
	case 6:
		_ = frames.WritePing(input.next()%2 == 0, [8]byte{})
	case 7:
		_ = frames.WriteSettings(http2.Setting{ID: http2.SettingID(input.next() % 8), Val: size() - 1})
	case 8:
		_ = frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(input.next()) * 256})
	case 9:
		_ = frames.WriteContinuation(stream(), input.next()%2 == 0, block.Bytes()[:min(int(input.next()), block.Len())])
	case 10:
		_ = frames.WritePriority(stream(), http2.PriorityParam{StreamDep: stream()})
	case 11:
		_ = frames.WriteGoAway(stream(), http2.ErrCode(input.next()), nil)
	case 12: // a frame of any kind
		payload := make([]byte, input.next()%32)
		for i := range payload {
			payload[i] = input.next()
		}
		_ = frames.WriteRawFrame(http2.FrameType(input.next()%12), http2.Flags(input.next()), stream(), payload)
	case 13: // no frame
		for range input.next() % 16 {
			out.WriteByte(input.next())
		}
	}
}
