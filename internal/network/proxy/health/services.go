package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/network/proxy/model"
)

// Services answers at the health check node ports of Services: 200 if this node has endpoints of the Service, else 503.
type Services struct {
	Healthy func() bool // of the proxy
	// Addresses are where to listen, all of a family if there are none of it.
	Addresses []netip.Addr
	// Failed is told of a port that cannot be listened at.
	Failed func(service types.NamespacedName, port uint16, err error)

	mu      sync.Mutex
	servers map[instance]*server
	wg      sync.WaitGroup
}

// instance is a Service in a family: each has its own count.
type instance struct {
	service types.NamespacedName
	family  model.Family
	port    uint16
}

type server struct {
	http  []*http.Server
	count int
}

// Sync has as many ports answered as there are checks. A port that cannot be listened at is tried again with every change.
func (s *Services) Sync(checks map[types.NamespacedName]model.HealthCheck) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers == nil {
		s.servers = map[instance]*server{}
	}
	wanted := map[instance]int{}
	for name, check := range checks {
		for _, f := range check.Family {
			wanted[instance{name, f, check.Port}] = map[model.Family]int{model.IPv4: check.IPv4, model.IPv6: check.IPv6}[f]
		}
	}
	for i, server := range s.servers { // ports must be free before others take them
		if _, ok := wanted[i]; !ok {
			server.close()
			delete(s.servers, i)
		}
	}
	for i, count := range wanted {
		if server := s.servers[i]; server != nil {
			server.count = count
			continue
		}
		server, err := s.listen(i, count)
		if err != nil {
			if s.Failed != nil {
				s.Failed(i.service, i.port, err)
			}
			continue
		}
		s.servers[i] = server
	}
}

// Close ends all of them.
func (s *Services) Close() {
	s.Sync(nil)
	s.wg.Wait()
}

func (s *Services) listen(i instance, count int) (*server, error) {
	network, addresses := "tcp4", []netip.Addr{netip.IPv4Unspecified()}
	if i.family == model.IPv6 {
		network, addresses = "tcp6", []netip.Addr{netip.IPv6Unspecified()}
	}
	var own []netip.Addr
	for _, a := range s.Addresses {
		if model.FamilyOf(a) == i.family {
			own = append(own, a)
		}
	}
	if len(own) > 0 {
		addresses = own
	}
	out := &server{count: count}
	for _, a := range addresses {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), network, netip.AddrPortFrom(a, i.port).String())
		if err != nil {
			out.close()
			return nil, fmt.Errorf("health check of service %s at port %d: %w", i.service, i.port, err)
		}
		h := &http.Server{Handler: s.handler(i), ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
		out.http = append(out.http, h)
		s.wg.Go(func() { _ = h.Serve(l) }) // it returns when it is closed
	}
	return out, nil
}

func (s *server) close() error {
	var failed error
	for _, h := range s.http {
		failed = errors.Join(failed, h.Close())
	}
	return failed
}

type answer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

func (s *Services) handler(i instance) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var a answer
		a.Service.Namespace, a.Service.Name = i.service.Namespace, i.service.Name
		s.mu.Lock()
		if server := s.servers[i]; server != nil {
			a.LocalEndpoints = server.count
		}
		s.mu.Unlock()
		a.ServiceProxyHealthy = s.Healthy()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(a.LocalEndpoints))
		if a.LocalEndpoints == 0 || !a.ServiceProxyHealthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "\t")
		_ = encoder.Encode(a)
	})
}
