package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"skiff/internal/slis"
)

// listen serves health and metrics of the proxy itself, until stop is called.
func (p *Proxy) listen(wg *sync.WaitGroup) (stop func(), err error) {
	var servers []*http.Server
	stop = func() {
		for _, s := range servers {
			_ = s.Close() // without waiting for requests in flight
		}
	}
	serve := func(address string, h http.Handler) error {
		if address == "" {
			return nil
		}
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
		if err != nil {
			return fmt.Errorf("the service proxy failed to listen on %s: %w", address, err)
		}
		s := &http.Server{Handler: h, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
		servers = append(servers, s)
		wg.Go(func() { _ = s.Serve(l) })
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/healthz", p.health.Handler())
	mux.Handle("/livez", p.health.Handler())
	mux.Handle("/metrics/slis", slis.New())
	mux.Handle("/metrics", promhttp.HandlerFor(p.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, p.o.Mode) })
	if err := errors.Join(serve(p.o.HealthzAddress, p.health.Handler()), serve(p.o.MetricsAddress, mux)); err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}
