package all

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/controller"
)

// idleGroups are sets of loops whose cost BenchmarkIdle measures, by what they are for.
var idleGroups = map[string][]string{
	"cron":   {"cronjob-controller"},
	"tokens": {"serviceaccount-token-controller", "legacy-serviceaccount-token-cleaner-controller"},
	"trust":  {"kube-apiserver-serving-clustertrustbundle-publisher-controller", "podcertificaterequest-cleaner-controller"},
}

// BenchmarkIdle measures what all loops take when there is nothing for them to do, with and without some of them: memory after a collection, stacks
// included, and processor time. Run it with -benchtime 1x -count 5.
func BenchmarkIdle(b *testing.B) {
	b.Run("all", func(b *testing.B) { idle(b) })
	for name, group := range idleGroups {
		b.Run("without "+name, func(b *testing.B) { idle(b, group...) })
	}
}

func idle(b *testing.B, without ...string) {
	chosen := []string{"*"}
	for _, name := range without {
		chosen = append(chosen, "-"+name)
	}
	server := apitest.Start(b)
	c := server.InProcess("kube-controller-manager", "system:kube-controller-manager")
	log := slog.New(slog.DiscardHandler)
	deps := controller.Deps{Informers: c.Informers(client.InformerOptions{}), Client: c, Log: log, Config: controller.Config{RootCA: []byte("none")}}
	loops, err := New(chosen, deps)
	if err != nil {
		b.Fatal(err)
	}
	m, err := controller.New(controller.Options{Informers: deps.Informers, Loops: loops, Log: log, Client: func(account string) (*client.Client, error) {
		return server.InProcess(account, "system:kube-controller-manager", "system:masters"), nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	defer running.Wait()
	defer cancel()
	if err := m.WaitReady(ctx); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		time.Sleep(3 * time.Second) // what they do at their start
		before := processorTime(b)
		time.Sleep(10 * time.Second)
		b.ReportMetric((processorTime(b)-before).Seconds()*10, "%core")
		runtime.GC()
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		b.ReportMetric(float64(s.HeapAlloc+s.StackInuse)/1000, "kB")
		b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
