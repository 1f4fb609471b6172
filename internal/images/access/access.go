package access

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"skiff/internal/cluster/pki"
	"skiff/internal/images"
)

const (
	// Username is the user name of all clients of the registry.
	Username = "skiff"
	// checkEvery is how often, at most, the certificate's files are checked.
	checkEvery = time.Hour
)

// Options configure the registry of a node.
type Options struct {
	Dir     string // directory of the credentials: <data-dir>/registry
	Address string // host and port to listen on; port 0 is any that is free
	NodeIPs []string
	Store   *images.Store
	Now     func() time.Time // time.Now if nil
	Log     *slog.Logger
}

// Registry is the running image registry of a node.
type Registry struct {
	*images.Server
	access images.Access
}

// Access returns the address and the credentials for clients on this node.
func (r *Registry) Access() images.Access { return r.access }

// Serve starts a registry with the credentials in the directory, and creates those that are missing.
func Serve(o Options) (*Registry, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	host, hosts, err := names(o.Address, o.NodeIPs)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.MkdirAll(o.Dir, 0o700), os.Chmod(o.Dir, 0o700)); err != nil {
		return nil, err
	}
	k := &certificateManager{o: o, hosts: hosts}
	if err := k.load(); err != nil {
		return nil, err
	}
	password, err := password(filepath.Join(o.Dir, "password"))
	if err != nil {
		return nil, err
	}
	server, err := images.Serve(images.ServeOptions{
		Address: o.Address, Store: o.Store, Hosts: hosts, Username: Username, Password: password, Log: o.Log,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: k.certificate},
	})
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(server.Address())
	r := &Registry{Server: server, access: images.Access{Address: net.JoinHostPort(host, port), CAFile: k.caFile(), Username: Username, Password: password}}
	if err == nil {
		err = r.writeConfig(filepath.Join(o.Dir, "config.json"), hosts, port)
	}
	if err != nil {
		return nil, errors.Join(err, server.Close(context.Background()))
	}
	return r, nil
}

// names returns the host that containerd connects to, and all host names that clients may use, for an address to listen on.
func names(address string, nodeIPs []string) (host string, all []string, err error) {
	host, _, err = net.SplitHostPort(address)
	if err != nil {
		return "", nil, fmt.Errorf("--registry-address %q is not host:port: %w", address, err)
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "" || err == nil && ip.IsUnspecified():
		return "127.0.0.1", append([]string{"127.0.0.1", "localhost"}, nodeIPs...), nil
	case host == "localhost" || err == nil && ip.IsLoopback():
		return host, append([]string{"localhost"}, host), nil
	case err == nil:
		return host, []string{host}, nil
	}
	return "", nil, fmt.Errorf("--registry-address %q does not begin with an IP address", address)
}

// writeConfig writes the credentials as a docker configuration file.
func (r *Registry) writeConfig(path string, hosts []string, port string) error {
	type auth struct {
		Auth string `json:"auth"`
	}
	auths := map[string]auth{}
	for _, host := range hosts {
		auths[net.JoinHostPort(host, port)] = auth{base64.StdEncoding.EncodeToString([]byte(r.access.Username + ":" + r.access.Password))}
	}
	data, err := json.MarshalIndent(map[string]any{"auths": auths}, "", "  ")
	if err != nil {
		return err
	}
	return replace(path, append(data, '\n'))
}

// password returns the password in a file, which it creates if there is none.
func password(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if p := strings.TrimSpace(string(data)); p != "" {
		return p, os.Chmod(path, 0o600)
	}
	p := rand.Text()
	return p, replace(path, []byte(p+"\n"))
}

// replace replaces a file by a rename, so that readers see the old content or the new. Only its owner may read it.
func replace(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return os.Chmod(path, 0o600)
	}
	part := path + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) { // a file that exists would keep its mode
		return err
	}
	if err := os.WriteFile(part, data, 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// certificateManager holds the registry's certificate and renews it.
type certificateManager struct {
	o     Options
	hosts []string

	mu      sync.Mutex
	current *tls.Certificate
	checked time.Time
}

func (k *certificateManager) caFile() string { return filepath.Join(k.o.Dir, "ca.crt") }

// load reads the authority and the certificate, and makes those that are missing or to be renewed.
func (k *certificateManager) load() error {
	dir, now := filepath.Join(k.o.Dir, "pki"), k.o.Now()
	authority, certificate, err := pki.LoadServer(dir, pki.Leaf{Name: "registry", Authority: "registry-ca", User: "skiff-image-registry", Hosts: k.hosts}, now)
	if err != nil {
		return err
	}
	if err := replace(k.caFile(), authority.PEM()); err != nil {
		return err
	}
	k.current, k.checked = &certificate, now
	return nil
}

// certificate returns the certificate for a connection, after renewing it if that is due.
func (k *certificateManager) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.o.Now()
	if since := now.Sub(k.checked); since >= checkEvery || since < 0 { // negative if the clock was set back
		if err := k.load(); err != nil {
			k.o.Log.Error("failed to renew the certificate of the image registry", "dir", k.o.Dir, "error", err)
			k.checked = now
		}
	}
	return k.current, nil
}
