package dns

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// udpBuffers pools buffers for responses over UDP.
var udpBuffers = sync.Pool{New: func() any { return new([maxUDPSize]byte) }}

// exchange asks one server: over UDP, and over TCP if the response is truncated.
func (f *forwarder) exchange(ctx context.Context, server netip.AddrPort, q *query, wait time.Duration) (*response, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	r, err := overUDP(ctx, server, q, true)
	if err == nil && (r.rcode() == rcodeFormatError || r.rcode() == rcodeNotImplemented) {
		r, err = overUDP(ctx, server, q, false) // the server may not support EDNS
	}
	if err != nil || binary.BigEndian.Uint16(r.msg[2:])&flagTruncated == 0 {
		return r, err
	}
	if whole, err := overTCP(ctx, server, q); err == nil {
		return whole, nil
	}
	return r, nil // still truncated: the client may retry over TCP itself
}

// overUDP sends a query from a fresh random port, against forged responses, and ignores packets that are not the response to it.
func overUDP(ctx context.Context, server netip.AddrPort, q *query, edns bool) (*response, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	id := uint16(rand.Uint32())
	if _, err := conn.Write(q.ask(id, edns)); err != nil {
		return nil, err
	}
	buffer := udpBuffers.Get().(*[maxUDPSize]byte)
	defer udpBuffers.Put(buffer)
	for {
		n, err := conn.Read(buffer[:])
		if err != nil {
			return nil, err
		}
		if q.sameQuestion(buffer[:n], id) {
			return newResponse(append(make([]byte, 0, n), buffer[:n]...), time.Now())
		}
	}
}

func overTCP(ctx context.Context, server netip.AddrPort, q *query) (*response, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	id := uint16(rand.Uint32())
	msg := q.ask(id, true)
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	if !q.sameQuestion(answer, id) {
		return nil, fmt.Errorf("%s answered another question: %w", server, errMessage)
	}
	return newResponse(answer, time.Now())
}
