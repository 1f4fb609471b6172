// Command testserver is a server for tests: it says who it is and what it was asked, and fails when it is told to.
//
//	GET  /         hostname, addresses, headers and environment, in JSON
//	GET  /hostname only that
//	GET  /healthz  200, or 500 after POST /fail until POST /mend
//	POST /exit?code=N ends the process
//	GET  /apis/…   who asks, as a front proxy says; what an aggregated API server serves
//	POST /review   refuses as an admission webhook, in the name of its hostname
//
// While it is told to fail, nobody listens at the address of --tcp, and the health service at the address of --grpc says NOT_SERVING.
// `testserver get URL` asks, and fails unless the answer is a good one.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

func main() {
	listen := flag.String("listen", ":8080", "address to serve at")
	linger := flag.Duration("linger", 0, "how long to go on after SIGTERM")
	tcp := flag.String("tcp", "", "another address to listen at while all is well")
	rpc := flag.String("grpc", "", "address to serve gRPC's health service at")
	secure := flag.String("tls", "", "another address to serve at, over TLS, with the certificate and key in the environment (TLS_CERT, TLS_KEY, in PEM)")
	failing := flag.Bool("failing", false, "begin as if told to fail")
	flag.Parse()
	if flag.Arg(0) == "get" {
		os.Exit(get(flag.Arg(1)))
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		fmt.Println("got", <-end)
		time.Sleep(*linger)
		os.Exit(0)
	}()
	s := &server{tcp: *tcp, health: health.NewServer()}
	if *rpc != "" {
		go func() { fatal(s.serveHealth(*rpc)) }()
	}
	if err := s.set(*failing); err != nil {
		fatal(err)
	}
	if *secure != "" {
		go func() { fatal(s.serveTLS(*secure)) }()
	}
	fmt.Println("serving at", *listen)
	fatal(http.ListenAndServe(*listen, s.handler()))
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func get(url string) int {
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer resp.Body.Close()
	io.Copy(os.Stdout, io.LimitReader(resp.Body, 1<<20))
	if resp.StatusCode != http.StatusOK {
		fmt.Println(resp.Status)
		return 1
	}
	return 0
}

type server struct {
	tcp    string
	health *health.Server

	mu       sync.Mutex
	failing  bool
	listener net.Listener
}

func (s *server) set(failing bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = failing
	state := healthpb.HealthCheckResponse_SERVING
	if failing {
		state = healthpb.HealthCheckResponse_NOT_SERVING
	}
	s.health.SetServingStatus("", state)
	if failing && s.listener != nil {
		s.listener.Close()
		s.listener = nil
	}
	if failing || s.tcp == "" || s.listener != nil {
		return nil
	}
	var err error
	if s.listener, err = net.Listen("tcp", s.tcp); err != nil {
		return err
	}
	go func(l net.Listener) {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}(s.listener)
	return nil
}

func (s *server) isFailing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing
}

func (s *server) serveHealth(address string) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	g := grpc.NewServer()
	healthpb.RegisterHealthServer(g, s.health)
	return g.Serve(l)
}

func (s *server) serveTLS(address string) error {
	certificate, err := tls.X509KeyPair([]byte(os.Getenv("TLS_CERT")), []byte(os.Getenv("TLS_KEY")))
	if err != nil {
		return err
	}
	secure := &http.Server{Addr: address, Handler: s.handler(), TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	return secure.ListenAndServeTLS("", "")
}

// review refuses what an admission webhook is asked about.
func review(w http.ResponseWriter, r *http.Request, hostname string) {
	var asked struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(map[string]any{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": map[string]any{
		"uid": asked.Request.UID, "allowed": false, "status": map[string]any{"message": "refused by " + hostname}}})
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	hostname, _ := os.Hostname()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		json.NewEncoder(w).Encode(map[string]any{
			"hostname": hostname, "remote": r.RemoteAddr, "local": fmt.Sprint(local), "host": r.Host, "headers": r.Header, "env": os.Environ(), "args": os.Args,
		})
	})
	mux.HandleFunc("GET /hostname", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, hostname) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if s.isFailing() {
			http.Error(w, "told to fail", http.StatusInternalServerError)
		}
	})
	for path, failing := range map[string]bool{"POST /fail": true, "POST /mend": false} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if err := s.set(failing); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		})
	}
	mux.HandleFunc("GET /apis/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"hostname": hostname, "user": r.Header.Get("X-Remote-User"), "path": r.URL.Path})
	})
	mux.HandleFunc("POST /review", func(w http.ResponseWriter, r *http.Request) { review(w, r, hostname) })
	mux.HandleFunc("POST /exit", func(_ http.ResponseWriter, r *http.Request) {
		code, _ := strconv.Atoi(r.FormValue("code"))
		os.Exit(code)
	})
	return mux
}
