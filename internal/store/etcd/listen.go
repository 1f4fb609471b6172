package etcd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
)

// maxSocketPath is the longest path that fits into a socket address on every system skiff runs on (Darwin's is the shortest).
const maxSocketPath = 103

// clientListener serves etcd's own API to clients such as etcdctl.
type clientListener struct {
	address string
	grpc    *grpc.Server
	serving sync.WaitGroup
}

func listen(server *etcdserver.EtcdServer, opts EmbedOptions) (*clientListener, error) {
	var (
		listener   net.Listener
		tlsConfig  *tls.Config
		err        error
		path, unix = strings.CutPrefix(opts.Listen, "unix:")
		host, tcp  = strings.CutPrefix(opts.Listen, "https://")
		c          = &clientListener{}
	)
	switch {
	case unix:
		listener, c.address, err = listenUnix(strings.TrimPrefix(path, "//"))
	case tcp:
		listener, c.address, tlsConfig, err = listenTLS(host, server, opts)
	default:
		err = errors.New("want unix:PATH, or https://ADDRESS:PORT with an address of this machine only")
	}
	if err != nil {
		return nil, fmt.Errorf("listen for etcd clients on %q: %w", opts.Listen, err)
	}
	// close waits for the handlers, because the database is closed after the listener and must not be read then.
	c.grpc = v3rpc.Server(server, tlsConfig, nil, grpc.WaitForHandlers(true))
	c.serving.Go(func() { _ = c.grpc.Serve(listener) })
	return c, nil
}

// listenUnix listens on a socket that only the owner of the process can connect to: etcd contains every Secret.
func listenUnix(path string) (net.Listener, string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, "", err
	}
	if len(path) > maxSocketPath {
		return nil, "", fmt.Errorf("the path has %d characters, a socket's may have %d: choose a shorter one", len(path), maxSocketPath)
	}
	if err := removeStaleSocket(path); err != nil {
		return nil, "", err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, "", err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, "", err
	}
	return listener, "unix://" + path, nil
}

// removeStaleSocket removes the socket that a killed process left behind, and returns an error if it is in use or not a socket.
func removeStaleSocket(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return errors.New("a file that is not a socket exists there: remove it or choose another path")
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return errors.New("another process listens there")
	}
	return os.Remove(path)
}

func listenTLS(address string, server *etcdserver.EtcdServer, opts EmbedOptions) (net.Listener, string, *tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", nil, err
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return nil, "", nil, errors.New("the address must be a loopback address such as 127.0.0.1")
	}
	if opts.CAFile == "" || opts.CertFile == "" || opts.KeyFile == "" {
		return nil, "", nil, errors.New("a certificate, its key and the CA of the clients are needed")
	}
	info := transport.TLSInfo{
		CertFile: opts.CertFile, KeyFile: opts.KeyFile,
		TrustedCAFile: opts.CAFile, ClientCertAuth: true,
		Logger: server.Logger(),
	}
	tlsConfig, err := info.ServerConfig()
	if err != nil {
		return nil, "", nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", nil, err
	}
	return listener, "https://" + listener.Addr().String(), tlsConfig, nil
}

func (c *clientListener) close() {
	c.grpc.Stop()
	c.serving.Wait()
}
