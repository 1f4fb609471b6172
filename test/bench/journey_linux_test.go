package bench

import (
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"skiff/internal/journey"
)

// BenchmarkJourneyCost creates pods in turn on a server that records journeys and on one that does not, and compares the CPU time of
// the thread, which can be compared on a machine that also does other work. It measures the handlers alone; over HTTPS and on etcd a create takes
// several times as long, so the share of the journey is smaller by that factor.
func BenchmarkJourneyCost(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a collection would count for whichever server is running
	with, without := start(b, journey.New(journey.Options{})), start(b, nil)
	for i := range 5000 { // until all memory for journeys is in use
		do(b, with, http.MethodPost, pods, protobuf, pod(fmt.Sprintf("w-%d", i)))
		do(b, without, http.MethodPost, pods, protobuf, pod(fmt.Sprintf("w-%d", i)))
	}
	var costWith, costWithout time.Duration
	n := 0
	for b.Loop() {
		body := pod(fmt.Sprintf("p-%d", n))
		for i := range 2 {
			server, cost := with, &costWith
			if (i+n)%2 == 1 {
				server, cost = without, &costWithout
			}
			began := threadTime(b)
			do(b, server, http.MethodPost, pods, protobuf, body)
			*cost += threadTime(b) - began
		}
		if n++; n%2000 == 0 {
			runtime.GC()
		}
	}
	b.ReportMetric(float64(costWith.Nanoseconds())/1e3/float64(n), "µs/create-with")
	b.ReportMetric(float64(costWithout.Nanoseconds())/1e3/float64(n), "µs/create-without")
	b.ReportMetric(100*(costWith-costWithout).Seconds()/costWithout.Seconds(), "%-more")
}

func threadTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const rusageThread = 1
