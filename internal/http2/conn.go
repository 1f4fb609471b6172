package http2

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// streamWindow and connWindow are how much of request bodies a client may send before handlers have read it.
	streamWindow = 1 << 20
	connWindow   = 4 << 20
	// maxWindow is the protocol's limit of a window.
	maxWindow = 1<<31 - 1
	// defaultWindow and defaultTable are what a connection begins with.
	defaultWindow = 65535
	defaultTable  = 4096
	// maxTable is how much this side remembers of headers it has sent.
	maxTable = 4096
	// maxControl is how many answers to control frames may wait to be sent before the client is taken for an attacker.
	maxControl = 1000
	// helloTimeout is how long the client may take to say that it speaks HTTP/2.
	helloTimeout = 10 * time.Second
	// lingerTime is how long the client may take to hang up after it was told to.
	lingerTime  = time.Second
	lingerBytes = 1 << 20
	readBuffer  = 4 << 10
)

// conn is a connection.
type conn struct {
	server *http.Server
	opts   Options
	ctx    context.Context
	cancel context.CancelFunc
	tls    transport
	outbox *outbox
	state  tls.ConnectionState
	remote string

	// The reader's own.
	in     *bufio.Reader
	bound  *boundedReader
	frames *http2.Framer
	lazy   *lazyReader
	calm   calm

	handlers sync.WaitGroup
	todo     chan work // taken by who has just run a handler
	batch    []*record // what is being written; whoever has set writing owns it

	mu        sync.Mutex
	queue     queue
	writing   bool
	failure   error  // why nothing can be sent any more
	control   int    // control frames queued since the last write
	lastID    uint32 // the newest request; only the reader changes it
	streams   map[uint32]*stream
	running   int        // handlers, also of streams that are gone
	cut       [64]uint32 // streams ended from this side, the newest in place of the oldest
	nextCut   int
	line      []*stream // who waits for room in the queue or in the connection's window
	window    int64     // how much data the client takes
	newWindow int64     // a new stream's
	maxFrame  int
	inWindow  int64 // how much data the client may send
	inFree    int64 // how much more it could
	encoder   *hpack.Encoder
	block     bytes.Buffer // what the encoder writes to
	draining  bool         // no new requests
	lastUse   time.Time
	idle      *time.Timer
}

// transport is what a *tls.Conn does for a connection.
type transport interface {
	net.Conn
	CloseWrite() error
	NetConn() net.Conn
	ConnectionState() tls.ConnectionState
}

func newConn(ctx context.Context, server *http.Server, t transport, opts Options) *conn {
	c := &conn{server: server, opts: opts, tls: t, state: t.ConnectionState(), remote: t.RemoteAddr().String(),
		streams: map[uint32]*stream{}, window: defaultWindow, newWindow: defaultWindow, inWindow: connWindow, maxFrame: recordSize, lastUse: time.Now()}
	c.outbox, _ = t.NetConn().(*outbox)
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.todo = make(chan work)
	c.in = bufio.NewReaderSize(t, readBuffer)
	c.bound = &boundedReader{Reader: c.in}
	c.frames = http2.NewFramer(nil, c.bound)
	c.lazy = newLazyReader(c.outbox, func() bool { return c.newWindow >= wideWindow })
	c.frames.SetReuseFrames()
	c.frames.SetMaxReadFrameSize(recordSize)
	c.frames.ReadMetaHeaders = hpack.NewDecoder(defaultTable, nil)
	c.frames.MaxHeaderListSize = uint32(opts.MaxHeaderBytes)
	c.encoder = hpack.NewEncoder(&c.block)
	c.encoder.SetMaxDynamicTableSizeLimit(maxTable)
	return c
}

// serve runs the connection until it ends and all its handlers have returned.
func (c *conn) serve() {
	c.mu.Lock() // checkIdle uses c.idle
	c.idle = time.AfterFunc(min(c.opts.IdleTimeout, c.opts.FirstRequestTimeout), c.checkIdle)
	c.mu.Unlock()
	err := c.hello()
	for err == nil {
		err = c.read()
	}
	c.bye(err)
	c.idle.Stop()
	c.lazy.stop()
	c.tls.Close()
	c.mu.Lock()
	c.fail(errClosed)
	c.mu.Unlock()
	c.cancel()
	c.handlers.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue.drop() // what was queued after the failure
}

var errClosed = errors.New("http2: the connection is closed")

// hello exchanges what each side allows the other.
func (c *conn) hello() error {
	c.mu.Lock()
	var settings []byte
	for _, s := range []http2.Setting{
		{ID: http2.SettingMaxConcurrentStreams, Val: uint32(c.opts.MaxStreams)},
		{ID: http2.SettingMaxHeaderListSize, Val: uint32(c.opts.MaxHeaderBytes)},
		{ID: http2.SettingInitialWindowSize, Val: streamWindow},
	} {
		settings = binary.BigEndian.AppendUint16(settings, uint16(s.ID))
		settings = binary.BigEndian.AppendUint32(settings, s.Val)
	}
	c.queue.frame(http2.FrameSettings, 0, 0, settings)
	c.windowUpdate(0, connWindow-defaultWindow)
	c.write()
	if err := c.tls.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	var preface [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(c.in, preface[:]); err != nil {
		return err
	}
	if string(preface[:]) != http2.ClientPreface {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	head, err := c.in.Peek(frameHead)
	if err != nil {
		return err
	}
	if http2.FrameType(head[3]) != http2.FrameSettings {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	if err := c.read(); err != nil {
		return err
	}
	return c.tls.SetReadDeadline(time.Time{})
}

// read takes in one frame. An error ends the connection.
func (c *conn) read() error {
	if c.in.Buffered() == 0 {
		c.answerControl()
	}
	c.bound.reads = 0
	frame, err := c.frames.ReadFrame()
	if err == nil {
		c.lazy.saw(frame)
		err = c.take(frame)
	}
	var ofStream http2.StreamError
	if errors.As(err, &ofStream) {
		if !c.calm.allow() {
			return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lastID = max(c.lastID, ofStream.StreamID) // a request that was refused was one
		c.reset(ofStream.StreamID, ofStream.Code)
		return c.checkControl()
	}
	return err
}

// answerControl sends answers to control frames, before the reader waits for more. It must not wait for the client itself: that may be
// waiting for the reader.
func (c *conn) answerControl() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.control == 0 || c.writing || c.failure != nil {
		return
	}
	c.handlers.Go(func() {
		c.mu.Lock()
		c.write()
	})
}

// checkControl is for a client that makes this side answer and does not read the answers.
func (c *conn) checkControl() error {
	if c.control > maxControl {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}

func (c *conn) take(frame http2.Frame) error {
	if idle(frame) && !c.calm.allow() {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		return c.takeHeaders(f)
	case *http2.DataFrame:
		return c.takeData(f)
	case *http2.WindowUpdateFrame:
		return c.takeWindow(f)
	case *http2.RSTStreamFrame:
		return c.takeReset(f)
	case *http2.SettingsFrame:
		return c.takeSettings(f)
	case *http2.PingFrame:
		if f.IsAck() {
			return nil
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.control++
		c.queue.frame(http2.FramePing, http2.FlagPingAck, 0, f.Data[:])
		return c.checkControl()
	case *http2.GoAwayFrame:
		c.drain()
	case *http2.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeProtocol}
		}
	case *http2.PushPromiseFrame:
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil // other priorities, and what this side does not know, do no harm
}

func (c *conn) takeSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := f.ForeachSetting(c.takeSetting); err != nil {
		return err
	}
	c.control++
	c.queue.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
	return c.checkControl()
}

func (c *conn) takeSetting(s http2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case http2.SettingHeaderTableSize:
		c.encoder.SetMaxDynamicTableSize(min(s.Val, maxTable))
	case http2.SettingMaxFrameSize:
		c.maxFrame = int(min(s.Val, recordSize))
	case http2.SettingInitialWindowSize:
		change := int64(s.Val) - c.newWindow
		c.newWindow = int64(s.Val)
		for _, st := range c.streams {
			if st.window += change; st.window > maxWindow {
				return http2.ConnectionError(http2.ErrCodeFlowControl)
			}
			st.wake()
		}
	}
	return nil
}

func (c *conn) takeWindow(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		closed := c.window <= 0
		if c.window += int64(f.Increment); c.window > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		if closed { // otherwise it is not this that they wait for
			c.wakeInLine(len(c.line))
		}
		return nil
	}
	st := c.streams[f.StreamID]
	if st == nil {
		return c.unknown(f.StreamID)
	}
	closed := st.window <= 0
	if st.window += int64(f.Increment); st.window > maxWindow {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeFlowControl}
	}
	if closed {
		st.wake()
	}
	return nil
}

// unknown says what is wrong with a frame for a stream that is not there: nothing, if it was there once.
func (c *conn) unknown(id uint32) error {
	if id > c.lastID || id%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

func (c *conn) takeReset(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.streams[f.StreamID]
	if st == nil {
		return c.unknown(f.StreamID)
	}
	delete(c.streams, st.id)
	st.abort(http2.StreamError{StreamID: st.id, Code: f.ErrCode})
	return nil
}

func (c *conn) takeData(f *http2.DataFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := int64(f.Header().Length) // padding counts too
	if c.inWindow -= size; c.inWindow < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	st := c.streams[f.StreamID]
	if st == nil || st.body.ended {
		if err := c.unknown(f.StreamID); err != nil {
			return err
		}
		c.giveBack(size)
		if c.wasCut(f.StreamID) {
			return nil
		}
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	}
	return st.body.take(f.Data(), size, f.StreamEnded())
}

// giveBack opens the connection's window for n bytes that need no more room.
func (c *conn) giveBack(n int64) {
	if c.inFree += n; c.inFree >= connWindow/2 {
		c.inWindow += c.inFree
		c.windowUpdate(0, uint32(c.inFree))
		c.inFree = 0
	}
}

// windowUpdate tells the client that it may send n bytes more.
func (c *conn) windowUpdate(stream uint32, n uint32) {
	c.control++
	var payload [4]byte
	binary.BigEndian.PutUint32(payload[:], n)
	c.queue.frame(http2.FrameWindowUpdate, 0, stream, payload[:])
}

// reset ends a stream with an error.
func (c *conn) reset(id uint32, code http2.ErrCode) {
	if st := c.streams[id]; st != nil {
		if !st.body.ended {
			c.cut[c.nextCut%len(c.cut)] = id
			c.nextCut++
		}
		delete(c.streams, id)
		st.abort(http2.StreamError{StreamID: id, Code: code})
	}
	c.control++
	var payload [4]byte
	binary.BigEndian.PutUint32(payload[:], uint32(code))
	c.queue.frame(http2.FrameRSTStream, 0, id, payload[:])
}

// wasCut says whether a stream was lately ended from this side with the client still sending. It cannot know yet, so what comes is no error.
func (c *conn) wasCut(id uint32) bool { return slices.Contains(c.cut[:], id) }

// wakeInLine has the first n of those who wait for the connection try again.
func (c *conn) wakeInLine(n int) {
	n = min(n, len(c.line))
	for _, st := range c.line[:n] {
		st.inLine = false
		st.wake()
	}
	c.line = append(c.line[:0], c.line[n:]...)
}

// fail ends everything at once: nothing more can be sent.
func (c *conn) fail(err error) {
	if c.failure != nil {
		return
	}
	c.failure = err
	c.queue.drop()
	for _, st := range c.streams {
		st.abort(err)
	}
	c.wakeInLine(len(c.line))
	c.outbox.Close() // so that the reader returns
}

func (c *conn) goAway(code http2.ErrCode) {
	var payload [8]byte
	binary.BigEndian.PutUint32(payload[:], c.lastID)
	binary.BigEndian.PutUint32(payload[4:], uint32(code))
	c.queue.frame(http2.FrameGoAway, 0, 0, payload[:])
}

// drain lets requests under way finish and takes no new ones. It does not wait.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining || c.failure != nil {
		return
	}
	c.draining = true
	c.goAway(http2.ErrCodeNo)
	c.hangUpIfDone()
	c.handlers.Go(func() {
		c.mu.Lock()
		c.write()
	})
}

// hangUpIfDone ends the connection when nothing is left to do. The client is given a moment to do so first, as it may still be reading.
func (c *conn) hangUpIfDone() {
	if c.draining && c.running == 0 {
		_ = c.tls.SetReadDeadline(time.Now().Add(lingerTime))
	}
}

func (c *conn) checkIdle() {
	c.mu.Lock()
	idle, timeout := time.Since(c.lastUse), c.opts.IdleTimeout
	if c.lastID == 0 {
		timeout = min(timeout, c.opts.FirstRequestTimeout)
	}
	if c.running > 0 {
		idle = 0
	}
	if c.failure == nil && !c.draining && idle < timeout {
		c.idle.Reset(timeout - idle)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.drain()
}

// flushed waits until whoever is writing has written everything.
func (c *conn) flushed(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing && c.failure == nil && time.Now().Before(until) {
		c.mu.Unlock()
		time.Sleep(time.Millisecond)
		c.mu.Lock()
	}
}

// bye tells the client what it did wrong.
func (c *conn) bye(err error) {
	var broken http2.ConnectionError
	switch {
	case errors.As(err, &broken):
	case errors.Is(err, http2.ErrFrameTooLarge):
		broken = http2.ConnectionError(http2.ErrCodeFrameSize)
	default:
		return // the client went away, or was asked to
	}
	c.mu.Lock()
	c.goAway(http2.ErrCode(broken))
	c.write()
	c.flushed(time.Now().Add(lingerTime))
	// Closed at once, a connection with unread data would take back what was just said.
	_ = c.tls.CloseWrite()
	_ = c.outbox.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, c.outbox, lingerBytes)
}
