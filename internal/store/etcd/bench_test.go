package etcd_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"

	"skiff/internal/store"
	"skiff/internal/store/etcd"
)

const parallelWriters = 32

// BenchmarkPut creates objects of 1.5 kB from 32 sides.
func BenchmarkPut(b *testing.B) {
	benchmarkPut(b, embed(b, etcd.EmbedOptions{Dir: b.TempDir()}))
}

// BenchmarkPutExternal does it over a socket.
func BenchmarkPutExternal(b *testing.B) {
	server := embed(b, etcd.EmbedOptions{Dir: b.TempDir(), Listen: "unix:" + socketPath(b)})
	s, err := etcd.Dial(context.Background(), etcd.DialOptions{Endpoints: []string{server.ListenAddress()}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	benchmarkPut(b, s)
}

func benchmarkPut(b *testing.B, s store.Store) {
	value := bytes.Repeat([]byte("v"), 1500)
	var next atomic.Int64
	b.SetParallelism(max(1, parallelWriters/runtime.GOMAXPROCS(0)))
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			key := "/registry/bench/" + strconv.FormatInt(next.Add(1), 10)
			if _, err := s.Put(context.Background(), key, value, store.PutOptions{}); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
}

func BenchmarkGet(b *testing.B) {
	s := embed(b, etcd.EmbedOptions{Dir: b.TempDir()})
	for i := range 1000 {
		put(b, s, fmt.Sprintf("/registry/bench/%d", i), "value")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, _, err := s.Get(context.Background(), fmt.Sprintf("/registry/bench/%d", i%1000)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReady is a first start, from nothing to the first write.
func BenchmarkReady(b *testing.B) {
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		s, err := etcd.Embed(context.Background(), etcd.EmbedOptions{Dir: filepath.Join(dir, strconv.Itoa(i))})
		if err != nil {
			b.Fatal(err)
		}
		put(b, s, "/a", "1")
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
}

// BenchmarkReopen is a later start, with 5,000 objects.
func BenchmarkReopen(b *testing.B) {
	opts := etcd.EmbedOptions{Dir: b.TempDir()}
	s, err := etcd.Embed(context.Background(), opts)
	if err != nil {
		b.Fatal(err)
	}
	for i := range 5000 {
		put(b, s, fmt.Sprintf("/registry/bench/%d", i), string(bytes.Repeat([]byte("v"), 1500)))
	}
	s.Close()
	for b.Loop() {
		s, err := etcd.Embed(context.Background(), opts)
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
}
