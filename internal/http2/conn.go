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
	// defaultWindow and defaultTable are the window and the size of the header table that a connection begins with.
	defaultWindow = 65535
	defaultTable  = 4096
	// maxTable is the size of the header table that the server uses for the headers it sends, in bytes.
	maxTable = 4096
	// maxControl is how many control frames may wait to be sent before the client, which causes them and reads none, is disconnected.
	maxControl = 1000
	// prefaceTimeout is how long the client may take to send the connection preface.
	prefaceTimeout = 10 * time.Second
	// lingerTime is how long the client may take to close the connection after GOAWAY.
	lingerTime = time.Second
	// lingerBytes is how much of what the client still sends is read before the connection is closed.
	lingerBytes = 1 << 20
	readBuffer  = 4 << 10
)

// conn is the server's side of an HTTP/2 connection.
type conn struct {
	server *http.Server
	opts   Options
	ctx    context.Context
	cancel context.CancelFunc
	tls    transport
	writer *recordWriter
	state  tls.ConnectionState
	remote string

	// These belong to the reader.
	in         *bufio.Reader
	bound      *boundedReader
	frames     *http2.Framer
	coalescer  *readCoalescer
	idleFrames idleFrameLimiter

	handlers sync.WaitGroup
	requests chan handlerCall // received by goroutines that have just run a handler
	batch    []*record        // the records that are being written; owned by the goroutine that has set writing

	mu              sync.Mutex
	queue           queue
	writing         bool   // a goroutine writes what is queued
	failure         error  // why nothing can be sent any more
	control         int    // control frames queued since the last write
	lastID          uint32 // stream ID of the newest request; only the reader changes it
	streams         map[uint32]*stream
	runningHandlers int        // also of streams that are closed
	resetIDs        [64]uint32 // ring of the streams that the server has reset last while the client was sending
	nextResetID     int
	waiters         []*stream // in the order in which they wait for room in the queue or in the connection's send window
	sendWindow      int64     // how much data the client accepts
	initialWindow   int64     // send window of a new stream
	maxFrame        int
	recvWindow      int64 // how much data the client may send
	recvFreed       int64 // how much of the data received was read since the client was last sent a WINDOW_UPDATE
	encoder         *hpack.Encoder
	block           bytes.Buffer // what the encoder writes to
	draining        bool         // no new requests are accepted
	lastUse         time.Time
	idleTimer       *time.Timer
}

// transport is the part of *tls.Conn that a connection uses.
type transport interface {
	net.Conn
	CloseWrite() error
	NetConn() net.Conn
	ConnectionState() tls.ConnectionState
}

func newConn(ctx context.Context, server *http.Server, t transport, opts Options) *conn {
	c := &conn{server: server, opts: opts, tls: t, state: t.ConnectionState(), remote: t.RemoteAddr().String(),
		streams: map[uint32]*stream{}, sendWindow: defaultWindow, initialWindow: defaultWindow, recvWindow: connWindow, maxFrame: recordSize, lastUse: time.Now()}
	c.writer, _ = t.NetConn().(*recordWriter)
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.requests = make(chan handlerCall)
	c.in = bufio.NewReaderSize(t, readBuffer)
	c.bound = &boundedReader{Reader: c.in}
	c.frames = http2.NewFramer(nil, c.bound)
	c.coalescer = newReadCoalescer(c.writer, func() bool { return c.initialWindow >= wideWindow })
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
	c.mu.Lock() // checkIdle uses c.idleTimer
	c.idleTimer = time.AfterFunc(min(c.opts.IdleTimeout, c.opts.FirstRequestTimeout), c.checkIdle)
	c.mu.Unlock()
	err := c.handshake()
	for err == nil {
		err = c.read()
	}
	c.sendError(err)
	c.idleTimer.Stop()
	c.coalescer.stop()
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

// handshake sends the server's settings and reads the client's preface and settings.
func (c *conn) handshake() error {
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
	if err := c.tls.SetReadDeadline(time.Now().Add(prefaceTimeout)); err != nil {
		return err
	}
	var preface [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(c.in, preface[:]); err != nil {
		return err
	}
	if string(preface[:]) != http2.ClientPreface {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	head, err := c.in.Peek(frameHeaderSize)
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

// read reads and handles one frame. An error ends the connection.
func (c *conn) read() error {
	if c.in.Buffered() == 0 {
		c.flushControl()
	}
	c.bound.reads = 0
	frame, err := c.frames.ReadFrame()
	if err == nil {
		c.coalescer.observe(frame)
		err = c.handle(frame)
	}
	var ofStream http2.StreamError
	if errors.As(err, &ofStream) {
		if !c.idleFrames.allow() {
			return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lastID = max(c.lastID, ofStream.StreamID) // a refused request has used its stream ID too
		c.reset(ofStream.StreamID, ofStream.Code)
		return c.checkControl()
	}
	return err
}

// flushControl sends queued control frames before the reader waits for more. It does so in another goroutine, because the client may not read before the
// reader does.
func (c *conn) flushControl() {
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

// checkControl fails if too many control frames wait to be sent: the client causes them and does not read.
func (c *conn) checkControl() error {
	if c.control > maxControl {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	return nil
}

// handle handles a frame.
func (c *conn) handle(frame http2.Frame) error {
	if isIdle(frame) && !c.idleFrames.allow() {
		return http2.ConnectionError(http2.ErrCodeEnhanceYourCalm)
	}
	switch f := frame.(type) {
	case *http2.MetaHeadersFrame:
		return c.handleHeaders(f)
	case *http2.DataFrame:
		return c.handleData(f)
	case *http2.WindowUpdateFrame:
		return c.handleWindowUpdate(f)
	case *http2.RSTStreamFrame:
		return c.handleReset(f)
	case *http2.SettingsFrame:
		return c.handleSettings(f)
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
	return nil // PRIORITY and unknown frames are ignored
}

func (c *conn) handleSettings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := f.ForeachSetting(c.handleSetting); err != nil {
		return err
	}
	c.control++
	c.queue.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
	return c.checkControl()
}

func (c *conn) handleSetting(s http2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	switch s.ID {
	case http2.SettingHeaderTableSize:
		c.encoder.SetMaxDynamicTableSize(min(s.Val, maxTable))
	case http2.SettingMaxFrameSize:
		c.maxFrame = int(min(s.Val, recordSize))
	case http2.SettingInitialWindowSize:
		change := int64(s.Val) - c.initialWindow
		c.initialWindow = int64(s.Val)
		for _, st := range c.streams {
			if st.sendWindow += change; st.sendWindow > maxWindow {
				return http2.ConnectionError(http2.ErrCodeFlowControl)
			}
			st.wake()
		}
	}
	return nil
}

func (c *conn) handleWindowUpdate(f *http2.WindowUpdateFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.StreamID == 0 {
		closed := c.sendWindow <= 0
		if c.sendWindow += int64(f.Increment); c.sendWindow > maxWindow {
			return http2.ConnectionError(http2.ErrCodeFlowControl)
		}
		if closed { // otherwise the streams wait for something else
			c.wakeWaiters(len(c.waiters))
		}
		return nil
	}
	st := c.streams[f.StreamID]
	if st == nil {
		return c.checkClosed(f.StreamID)
	}
	closed := st.sendWindow <= 0
	if st.sendWindow += int64(f.Increment); st.sendWindow > maxWindow {
		return http2.StreamError{StreamID: st.id, Code: http2.ErrCodeFlowControl}
	}
	if closed {
		st.wake()
	}
	return nil
}

// checkClosed returns the error of a frame for a stream that is not open: none if the stream was open once.
func (c *conn) checkClosed(id uint32) error {
	if id > c.lastID || id%2 == 0 {
		return http2.ConnectionError(http2.ErrCodeProtocol)
	}
	return nil
}

func (c *conn) handleReset(f *http2.RSTStreamFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.streams[f.StreamID]
	if st == nil {
		return c.checkClosed(f.StreamID)
	}
	delete(c.streams, st.id)
	st.abort(http2.StreamError{StreamID: st.id, Code: f.ErrCode})
	return nil
}

func (c *conn) handleData(f *http2.DataFrame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := int64(f.Header().Length) // with padding
	if c.recvWindow -= size; c.recvWindow < 0 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	st := c.streams[f.StreamID]
	if st == nil || st.body.ended {
		if err := c.checkClosed(f.StreamID); err != nil {
			return err
		}
		c.freeWindow(size)
		if c.wasReset(f.StreamID) {
			return nil
		}
		return http2.StreamError{StreamID: f.StreamID, Code: http2.ErrCodeStreamClosed}
	}
	return st.body.receive(f.Data(), size, f.StreamEnded())
}

// freeWindow frees n bytes of the connection's receive window, and sends a WINDOW_UPDATE once half of the window is free.
func (c *conn) freeWindow(n int64) {
	if c.recvFreed += n; c.recvFreed >= connWindow/2 {
		c.recvWindow += c.recvFreed
		c.windowUpdate(0, uint32(c.recvFreed))
		c.recvFreed = 0
	}
}

// windowUpdate queues a WINDOW_UPDATE frame: the client may send n bytes more.
func (c *conn) windowUpdate(stream uint32, n uint32) {
	c.control++
	var payload [4]byte
	binary.BigEndian.PutUint32(payload[:], n)
	c.queue.frame(http2.FrameWindowUpdate, 0, stream, payload[:])
}

// reset closes a stream and queues a RST_STREAM frame.
func (c *conn) reset(id uint32, code http2.ErrCode) {
	if st := c.streams[id]; st != nil {
		if !st.body.ended {
			c.resetIDs[c.nextResetID%len(c.resetIDs)] = id
			c.nextResetID++
		}
		delete(c.streams, id)
		st.abort(http2.StreamError{StreamID: id, Code: code})
	}
	c.control++
	var payload [4]byte
	binary.BigEndian.PutUint32(payload[:], uint32(code))
	c.queue.frame(http2.FrameRSTStream, 0, id, payload[:])
}

// wasReset reports whether the server has reset a stream lately while the client was sending. The client may not know yet, so frames for it are no error.
func (c *conn) wasReset(id uint32) bool { return slices.Contains(c.resetIDs[:], id) }

// wakeWaiters wakes the first n streams that wait for the connection.
func (c *conn) wakeWaiters(n int) {
	n = min(n, len(c.waiters))
	for _, st := range c.waiters[:n] {
		st.isWaiter = false
		st.wake()
	}
	c.waiters = append(c.waiters[:0], c.waiters[n:]...)
}

// fail aborts all streams and closes the connection: nothing more can be sent.
func (c *conn) fail(err error) {
	if c.failure != nil {
		return
	}
	c.failure = err
	c.queue.drop()
	for _, st := range c.streams {
		st.abort(err)
	}
	c.wakeWaiters(len(c.waiters))
	c.writer.Close() // so that the reader returns
}

func (c *conn) goAway(code http2.ErrCode) {
	var payload [8]byte
	binary.BigEndian.PutUint32(payload[:], c.lastID)
	binary.BigEndian.PutUint32(payload[4:], uint32(code))
	c.queue.frame(http2.FrameGoAway, 0, 0, payload[:])
}

// drain sends GOAWAY: requests in flight finish, and no new ones are accepted. It does not wait.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining || c.failure != nil {
		return
	}
	c.draining = true
	c.goAway(http2.ErrCodeNo)
	c.closeIfDrained()
	c.handlers.Go(func() {
		c.mu.Lock()
		c.write()
	})
}

// closeIfDrained closes the connection of which no request is left after lingerTime: the client may still be reading, and should close it first.
func (c *conn) closeIfDrained() {
	if c.draining && c.runningHandlers == 0 {
		_ = c.tls.SetReadDeadline(time.Now().Add(lingerTime))
	}
}

// checkIdle drains the connection if it was idle for too long, and otherwise checks again when it may have been.
func (c *conn) checkIdle() {
	c.mu.Lock()
	idle, timeout := time.Since(c.lastUse), c.opts.IdleTimeout
	if c.lastID == 0 {
		timeout = min(timeout, c.opts.FirstRequestTimeout)
	}
	if c.runningHandlers > 0 {
		idle = 0
	}
	if c.failure == nil && !c.draining && idle < timeout {
		c.idleTimer.Reset(timeout - idle)
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	c.drain()
}

// awaitFlush waits until the goroutine that writes has written everything.
func (c *conn) awaitFlush(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.writing && c.failure == nil && time.Now().Before(until) {
		c.mu.Unlock()
		time.Sleep(time.Millisecond)
		c.mu.Lock()
	}
}

// sendError sends GOAWAY with the code of a protocol error, before the connection is closed.
func (c *conn) sendError(err error) {
	var broken http2.ConnectionError
	switch {
	case errors.As(err, &broken):
	case errors.Is(err, http2.ErrFrameTooLarge):
		broken = http2.ConnectionError(http2.ErrCodeFrameSize)
	default:
		return // the client closed the connection, or the server drains it
	}
	c.mu.Lock()
	c.goAway(http2.ErrCode(broken))
	c.write()
	c.awaitFlush(time.Now().Add(lingerTime))
	// A connection that is closed with unread data is reset, and the client may then never see the GOAWAY.
	_ = c.tls.CloseWrite()
	_ = c.writer.SetReadDeadline(time.Now().Add(lingerTime))
	_, _ = io.CopyN(io.Discard, c.writer, lingerBytes)
}
