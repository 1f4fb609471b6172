package http2

import (
	"io"
	"net/http"
	"runtime"
	"testing"
)

// TestPlainSockets: with PlainSockets, the kernel wakes the reader for every byte, whatever the client sends.
func TestPlainSockets(t *testing.T) {
	c, socket, _ := coalescingServer(t, 4<<20, Options{PlainSockets: true})
	if c.sendWindowUpdates(socket) {
		t.Error("the reader coalesces")
	}
	next := uint32(3)
	for range 50 {
		if next = c.sendRequests(next, 60); lowWaterMark(t, socket) > 1 {
			t.Fatal("the reader coalesces")
		}
	}
}

var socketKinds = map[string]Options{"raw": {}, "plain": {PlainSockets: true}}

// BenchmarkSockets sends short requests, 32 in flight on one connection, in turn with raw and with plain sockets: see Options.PlainSockets.
func BenchmarkSockets(b *testing.B) {
	for name, opts := range socketKinds {
		b.Run(name, func(b *testing.B) {
			address := serve(b, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }), opts)
			c := client(b)
			b.SetParallelism(32 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(loop *testing.PB) {
				for loop.Next() {
					r, err := c.Get("https://" + address)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					r.Body.Close()
				}
			})
		})
	}
}

// BenchmarkIdleConnections reports how much memory an idle connection takes on both sides together, with raw and with plain sockets.
func BenchmarkIdleConnections(b *testing.B) {
	for name, opts := range socketKinds {
		b.Run(name, func(b *testing.B) {
			address := serve(b, http.NotFoundHandler(), opts)
			memory := func() uint64 {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapInuse + m.StackInuse
			}
			before := memory()
			for b.Loop() {
				c := client(b)
				r, err := c.Get("https://" + address)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
			b.ReportMetric(float64(memory()-before)/float64(b.N), "B/conn")
		})
	}
}
