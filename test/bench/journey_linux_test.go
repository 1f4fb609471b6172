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

// BenchmarkJourneyCost creates pods in turn on a server that remembers journeys and on one that does not, and compares the processor time of
// the thread: on a machine where others work too that is what can be compared. It is the handlers alone; over HTTPS and on etcd a create takes
// several times as much, and the part of the journey is as much smaller.
func BenchmarkJourneyCost(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it costs whoever is running
	with, without := start(b, journey.New(journey.Options{})), start(b, nil)
	for i := range 5000 { // until the memory of the journeys has been touched
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
