package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"skiff/internal/store"
	"skiff/internal/store/etcd"
)

func cpu() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(0, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
func proc(f string, keys ...string) string {
	b, _ := os.ReadFile(f)
	var out []string
	for _, l := range strings.Split(string(b), "\n") {
		for _, k := range keys {
			if strings.HasPrefix(l, k) {
				out = append(out, strings.Join(strings.Fields(l), " "))
			}
		}
	}
	return strings.Join(out, ", ")
}
func rss() string { return proc("/proc/self/status", "VmRSS", "RssAnon", "RssFile") }

func main() {
	fill := flag.Int("fill", 0, "")
	idle := flag.Duration("idle", 20*time.Second, "")
	dir := flag.String("dir", "", "")
	flag.Parse()
	if *dir == "" {
		*dir, _ = os.MkdirTemp("", "st")
		defer os.RemoveAll(*dir)
	}
	t0 := time.Now()
	s, err := etcd.Embed(context.Background(), etcd.EmbedOptions{Dir: filepath.Join(*dir, "e")})
	if err != nil {
		panic(err)
	}
	fmt.Println("ready", time.Since(t0), rss())
	if *fill > 0 {
		var wg sync.WaitGroup
		for g := range 64 {
			wg.Go(func() {
				for i := g; i < *fill; i += 64 {
					if _, err := s.Put(context.Background(), fmt.Sprint("/registry/", i), make([]byte, 1500), store.PutOptions{}); err != nil {
						panic(err)
					}
				}
			})
		}
		wg.Wait()
		fmt.Println("filled", time.Since(t0), rss())
		runtime.GC()
		time.Sleep(100 * time.Millisecond)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println("heap in use", m.HeapInuse>>10, "kB")
	} else {
		w := s.Watch(context.Background(), "/registry/", 1)
		go func() {
			for range w.Batches() {
			}
		}()
		time.Sleep(6 * time.Second)
		c0, t1 := cpu(), time.Now()
		fmt.Println(proc("/proc/self/io", "write_bytes", "syscw", "wchar"))
		time.Sleep(*idle)
		fmt.Printf("idle cpu %.2f%% goroutines %d\n", 100*float64(cpu()-c0)/float64(time.Since(t1)), runtime.NumGoroutine())
		fmt.Println(proc("/proc/self/io", "write_bytes", "syscw", "wchar"), rss())
	}
	t2 := time.Now()
	s.Close()
	fmt.Println("closed in", time.Since(t2))
}
