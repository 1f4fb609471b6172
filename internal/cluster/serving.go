package cluster

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn/clientcert"
	"skiff/internal/cluster/pki"
)

// ServingConfig configures how the API is served: kube-apiserver's flags about connections.
type ServingConfig struct {
	TLSMinVersion   string // VersionTLS12, if empty
	TLSCipherSuites []string
	TLSCurves       []int32
	// NamedCertificates are the certificates for the server names that clients ask for (SNI).
	NamedCertificates []NamedCertificate
	MaxStreams        int // requests in flight on an HTTP/2 connection; 100 if 0
	// MaxConnections and MaxConnectionsPerAddress bound open connections; connectionLimits has the defaults, if 0.
	MaxConnections, MaxConnectionsPerAddress int
	Front                                    apiserver.FrontOptions
	// ShutdownDelay is how long the API is served after the server was told to stop, with /readyz failing.
	ShutdownDelay time.Duration
	// MinRequestTimeout is how long a watch lasts at least, in seconds.
	MinRequestTimeout int
	NoProfiling       bool
	ExternalHost      string
}

// KubeletClientConfig configures how the API server connects to kubelets: with the cluster's own certificates, if files are not given.
type KubeletClientConfig struct {
	CertFile, KeyFile, CAFile string
	// AddressTypes are the types of a node's addresses to try, in order; apiserver.DefaultKubeletAddresses if empty.
	AddressTypes []string
}

// AggregationConfig configures how the API server connects to aggregated API servers.
type AggregationConfig struct {
	// CertFile and KeyFile are the certificate of the front proxy that this server is for them; the cluster's own if empty.
	CertFile, KeyFile string
	// ForwardRedirects has their redirects forwarded to clients.
	ForwardRedirects bool
}

func (c *AggregationConfig) check() error {
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("--proxy-client-cert-file and --proxy-client-key-file go together")
	}
	return nil
}

// proxyClientCertificate returns a function that returns the certificate for aggregated API servers: that of flags, or else the cluster's own.
func (s *Server) proxyClientCertificate() (func() (*tls.Certificate, error), error) {
	c := s.config.Aggregation
	if c.CertFile == "" {
		return func() (*tls.Certificate, error) { return s.certs.Certificate(pki.FrontProxyClient) }, nil
	}
	files, err := openCertificateFiles(c.CertFile, c.KeyFile, s.config.Log)
	if err != nil {
		return nil, fmt.Errorf("--proxy-client-cert-file: %w", err)
	}
	return func() (*tls.Certificate, error) { return files.current(), nil }, nil
}

// DefaultKubeletAddressTypes returns the default of AddressTypes.
func DefaultKubeletAddressTypes() []string {
	var types []string
	for _, t := range apiserver.DefaultKubeletAddresses() {
		types = append(types, string(t))
	}
	return types
}

func (c *KubeletClientConfig) addressTypes() []corev1.NodeAddressType {
	var types []corev1.NodeAddressType
	for _, t := range c.AddressTypes {
		types = append(types, corev1.NodeAddressType(t))
	}
	return types
}

// NamedCertificate is a certificate for server names: for those that it is issued for, if Names is empty.
type NamedCertificate struct {
	CertFile, KeyFile string
	Names             []string
}

// ParseNamedCertificate parses "CERT,KEY" or "CERT,KEY:NAME,...".
func ParseNamedCertificate(s string) (NamedCertificate, error) {
	files, names, named := strings.Cut(s, ":")
	certFile, keyFile, ok := strings.Cut(files, ",")
	if !ok || certFile == "" || keyFile == "" || strings.Contains(keyFile, ",") {
		return NamedCertificate{}, errors.New("expected comma separated certificate and key file paths")
	}
	n := NamedCertificate{CertFile: certFile, KeyFile: keyFile}
	if named {
		n.Names = strings.Split(names, ",")
		for _, name := range n.Names {
			if strings.TrimSpace(name) == "" {
				return NamedCertificate{}, errors.New("a domain pattern is empty")
			}
		}
	}
	return n, nil
}

// String returns the form that ParseNamedCertificate parses.
func (n NamedCertificate) String() string {
	s := n.CertFile + "," + n.KeyFile
	if len(n.Names) > 0 {
		s += ":" + strings.Join(n.Names, ",")
	}
	return s
}

var tlsVersions = map[string]uint16{"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}

func (c *ServingConfig) check() error {
	switch {
	case c.MaxStreams < 0:
		return fmt.Errorf("--http2-max-streams-per-connection %d is negative", c.MaxStreams)
	case c.MaxConnections < 0 || c.MaxConnectionsPerAddress < 0:
		return errors.New("--max-connections and --max-connections-per-address can not be negative")
	case c.MinRequestTimeout < 0:
		return errors.New("--min-request-timeout can not be negative value")
	case c.ShutdownDelay < 0:
		return errors.New("--shutdown-delay-duration can not be negative value")
	}
	return errors.Join(c.Front.Check(), c.apply(&tls.Config{}))
}

// apply sets the minimum version, cipher suites and curves of a TLS configuration.
func (c *ServingConfig) apply(to *tls.Config) error {
	to.MinVersion = tls.VersionTLS12
	if c.TLSMinVersion != "" {
		version, ok := tlsVersions[c.TLSMinVersion]
		if !ok {
			return fmt.Errorf("unknown tls version %q", c.TLSMinVersion)
		}
		to.MinVersion = version
	}
	known := map[string]uint16{}
	for _, suite := range append(tls.CipherSuites(), tls.InsecureCipherSuites()...) {
		known[suite.Name] = suite.ID
	}
	for _, name := range c.TLSCipherSuites {
		id, ok := known[name]
		if !ok {
			return fmt.Errorf("cipher suite %s not supported or doesn't exist", name)
		}
		to.CipherSuites = append(to.CipherSuites, id)
	}
	for _, curve := range c.TLSCurves {
		if curve <= 0 || curve > 0xffff {
			return fmt.Errorf("--tls-curve-preferences: %d is not the number of a curve", curve)
		}
		to.CurvePreferences = append(to.CurvePreferences, tls.CurveID(curve))
	}
	return nil
}

// certificateFiles is a certificate and its key in two files, which are read again once a minute.
type certificateFiles struct {
	certFile, keyFile string
	log               *slog.Logger

	mu        sync.Mutex
	cert, key []byte
	pair      *tls.Certificate
	readAt    time.Time
}

// rereadPeriod is how long the files are not read again.
const rereadPeriod = time.Minute

func openCertificateFiles(certFile, keyFile string, log *slog.Logger) (*certificateFiles, error) {
	f := &certificateFiles{certFile: certFile, keyFile: keyFile, log: log}
	return f, f.read(time.Now())
}

// current returns the certificate in the files, or the last one that was valid.
func (f *certificateFiles) current() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.readAt) >= rereadPeriod {
		if err := f.read(now); err != nil {
			f.log.Warn("failed to read a certificate again", "file", f.certFile, "error", err)
		}
	}
	return f.pair
}

// read reads the files, and keeps the certificate if they have not changed.
func (f *certificateFiles) read(now time.Time) error {
	f.readAt = now
	cert, err := os.ReadFile(f.certFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(f.keyFile)
	if err != nil {
		return err
	}
	if f.pair != nil && bytes.Equal(cert, f.cert) && bytes.Equal(key, f.key) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("failed to parse the certificate %s with the key %s: %w", f.certFile, f.keyFile, err)
	}
	f.cert, f.key, f.pair = cert, key, &pair
	return nil
}

// certificatesByName maps server names to certificates.
type certificatesByName map[string]*certificateFiles

// openNamedCertificates reads the certificates. Of two for the same name, one whose names were given takes precedence, and then the first.
func openNamedCertificates(all []NamedCertificate, log *slog.Logger) (certificatesByName, error) {
	explicit, extracted := certificatesByName{}, certificatesByName{}
	for _, n := range all {
		files, err := openCertificateFiles(n.CertFile, n.KeyFile, log)
		if err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key: %w", err)
		}
		names, into := n.Names, explicit
		if len(names) == 0 {
			names, into = namesOf(files.pair.Leaf), extracted
		}
		for _, name := range names {
			if name = strings.ToLower(name); into[name] == nil {
				into[name] = files
			}
		}
	}
	for name, files := range extracted {
		if explicit[name] == nil {
			explicit[name] = files
		}
	}
	return explicit, nil
}

// namesOf returns the names that a certificate is issued for.
func namesOf(leaf *x509.Certificate) []string {
	names := leaf.DNSNames
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if leaf.Subject.CommonName != "" {
		names = append(names, leaf.Subject.CommonName)
	}
	return names
}

// find returns the certificate for the server name that a client asks for, or nil.
func (c certificatesByName) find(name string) *tls.Certificate {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	files := c[name]
	if _, domain, ok := strings.Cut(name, "."); files == nil && ok {
		files = c["*."+domain]
	}
	if files == nil {
		return nil
	}
	return files.current()
}

// tlsConfig returns the TLS configuration of the API: with the certificate given, or one of the cluster's own authority.
func (s *Server) tlsConfig() (*tls.Config, error) {
	c := s.config
	base := &tls.Config{DynamicRecordSizingDisabled: true, NextProtos: []string{"h2", "http/1.1"}, ClientAuth: tls.RequestClientCert}
	if err := c.Serving.apply(base); err != nil {
		return nil, err
	}
	named, err := openNamedCertificates(c.Serving.NamedCertificates, c.Log)
	if err != nil {
		return nil, err
	}
	if c.TLSCertFile == "" {
		return s.perClientConfig(s.certs.ServerConfig(base, pki.APIServer), named), nil
	}
	files, err := openCertificateFiles(c.TLSCertFile, c.TLSKeyFile, c.Log)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file: %w", err)
	}
	s.ca = files.cert
	base.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return files.current(), nil }
	return s.perClientConfig(base, named), nil
}

// perClientConfig adds to a TLS configuration what is decided for each connection: the authorities of client certificates at that time, and the certificate for
// the server name that the client asks for.
func (s *Server) perClientConfig(config *tls.Config, named certificatesByName) *tls.Config {
	perClient := config.Clone()
	perClient.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c := config.Clone()
		if config.GetConfigForClient != nil {
			var err error
			if c, err = config.GetConfigForClient(hello); err != nil {
				return nil, err
			}
		}
		c.ClientCAs = x509.NewCertPool()
		for _, authorities := range s.api.ClientCAs() {
			for _, certificate := range authorities().Certificates {
				c.ClientCAs.AddCert(certificate)
			}
		}
		if certificate := named.find(hello.ServerName); certificate != nil {
			c.Certificates, c.GetCertificate = []tls.Certificate{*certificate}, nil
		}
		return c, nil
	}
	return perClient
}

func (c *KubeletClientConfig) check() error {
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("--kubelet-client-certificate and --kubelet-client-key go together")
	}
	for _, t := range c.AddressTypes {
		if known := DefaultKubeletAddressTypes(); !slices.Contains(known, t) {
			return fmt.Errorf("--kubelet-preferred-address-types: %q is none of %s", t, strings.Join(known, ", "))
		}
	}
	return nil
}

// kubeletTLS returns the TLS configuration for connections to kubelets: with the certificate and authority of flags, or else the cluster's own.
func (s *Server) kubeletTLS() (func() (*tls.Config, error), error) {
	c := s.config.Kubelets
	clusterConfig := func() (*tls.Config, error) { return s.certs.ClientConfig(pki.APIServerKubeletClient, pki.CA) }
	var files *certificateFiles
	var authorities clientcert.CAs
	if c.CertFile != "" {
		var err error
		if files, err = openCertificateFiles(c.CertFile, c.KeyFile, s.config.Log); err != nil {
			return nil, fmt.Errorf("--kubelet-client-certificate: %w", err)
		}
	}
	if c.CAFile != "" {
		var err error
		if authorities, err = clientcert.FromFile(c.CAFile, clock.RealClock{}, s.config.Log); err != nil {
			return nil, fmt.Errorf("--kubelet-certificate-authority: %w", err)
		}
	}
	if files == nil && authorities == nil {
		return clusterConfig, nil
	}
	return func() (*tls.Config, error) {
		config, err := clusterConfig()
		if err != nil {
			return nil, err
		}
		if files != nil {
			config.Certificates = []tls.Certificate{*files.current()}
		}
		if authorities != nil {
			config.RootCAs = authorities().Pool
		}
		return config, nil
	}, nil
}
