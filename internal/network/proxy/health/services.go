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

// Services serves the health check node ports of Services: 200 if this node has endpoints of the Service and the proxy is healthy, else 503.
type Services struct {
	Healthy func() bool // reports whether the proxy is healthy
	// Addresses lists the addresses to listen on; all of a family if it has none of the family.
	Addresses []netip.Addr
	// ListenFailed is called for a port that cannot be listened on.
	ListenFailed func(service types.NamespacedName, port uint16, err error)

	mu      sync.Mutex
	servers map[instance]*server
	wg      sync.WaitGroup
}

// instance is a Service in an address family: each has its own number of endpoints.
type instance struct {
	service types.NamespacedName
	family  model.Family
	port    uint16
}

type server struct {
	http  []*http.Server
	count int
}

// Sync starts and stops servers so that exactly the given checks are served. A port that cannot be listened on is tried again at every call.
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
	for i, server := range s.servers { // ports must be free before other servers take them
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
			if s.ListenFailed != nil {
				s.ListenFailed(i.service, i.port, err)
			}
			continue
		}
		s.servers[i] = server
	}
}

// Close stops all servers.
func (s *Services) Close() {
	s.Sync(nil)
	s.wg.Wait()
}

func (s *Services) listen(i instance, count int) (*server, error) {
	network, addresses := "tcp4", []netip.Addr{netip.IPv4Unspecified()}
	if i.family == model.IPv6 {
		network, addresses = "tcp6", []netip.Addr{netip.IPv6Unspecified()}
	}
	var configured []netip.Addr
	for _, a := range s.Addresses {
		if model.FamilyOf(a) == i.family {
			configured = append(configured, a)
		}
	}
	if len(configured) > 0 {
		addresses = configured
	}
	out := &server{count: count}
	for _, a := range addresses {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), network, netip.AddrPortFrom(a, i.port).String())
		if err != nil {
			out.close()
			return nil, fmt.Errorf("failed to listen for the health check of service %s on port %d: %w", i.service, i.port, err)
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
