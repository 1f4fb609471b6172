package client

import (
	"errors"
	"net"
	"net/http"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"
)

// Credentials are those that a kubeconfig file has for webhook servers: its users are named after the servers that they are for. Nil has none.
type Credentials struct{ config *clientcmdapi.Config }

// ReadCredentials reads a kubeconfig file. The files that it names are read when a server is called.
func ReadCredentials(path string) (*Credentials, error) {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, err
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, err
	}
	return &Credentials{config}, nil
}

// userOf returns the user for a server HOST:PORT, or nil. It is named after the server, or *.DOMAIN after a domain that the server is in; with the port, or
// without if that is 443. Servers without such a user have the one named *, and else that of the current context.
func (c *Credentials) userOf(server string) *clientcmdapi.AuthInfo {
	if c == nil {
		return nil
	}
	names := withDomains(server)
	if host, port, err := net.SplitHostPort(server); err == nil && port == "443" {
		names = append(names, withDomains(host)...)
	}
	for _, name := range append(names, "*") {
		if user := c.config.AuthInfos[name]; user != nil {
			return user
		}
	}
	if current := c.config.Contexts[c.config.CurrentContext]; current != nil {
		return c.config.AuthInfos[current.AuthInfo]
	}
	return nil
}

// withDomains returns a name, and *.DOMAIN for each domain that it is in, the smallest first.
func withDomains(name string) []string {
	names := []string{name}
	for _, domain, ok := strings.Cut(name, "."); ok; _, domain, ok = strings.Cut(domain, ".") {
		names = append(names, "*."+domain)
	}
	return names
}

// transportConfig returns how to connect to a server as a user; as nobody if the user is nil.
func transportConfig(user *clientcmdapi.AuthInfo, dial Dial) (*transport.Config, error) {
	c := &rest.Config{Dial: dial}
	if user == nil {
		return c.TransportConfig()
	}
	if user.AuthProvider != nil {
		return nil, errors.New("auth provider not supported")
	}
	c.BearerToken, c.BearerTokenFile, c.Username, c.Password, c.ExecProvider = user.Token, user.TokenFile, user.Username, user.Password, user.Exec
	if c.BearerToken == "" && c.BearerTokenFile != "" {
		token, err := os.ReadFile(c.BearerTokenFile)
		if err != nil {
			return nil, err
		}
		c.BearerToken = strings.TrimSpace(string(token))
	}
	if user.Impersonate != "" {
		c.Impersonate = rest.ImpersonationConfig{UserName: user.Impersonate, UID: user.ImpersonateUID, Groups: user.ImpersonateGroups, Extra: user.ImpersonateUserExtra}
	}
	if user.ClientCertificate != "" || len(user.ClientCertificateData) > 0 {
		c.CertFile, c.CertData, c.KeyFile, c.KeyData = user.ClientCertificate, user.ClientCertificateData, user.ClientKey, user.ClientKeyData
	}
	return c.TransportConfig()
}

// connections are those to one webhook server.
type connections struct {
	http.RoundTripper // adds credentials to requests
	http              *http.Transport
}

// CredentialsError says that a webhook server cannot be called: nothing can verify its certificate, or there are no credentials for it.
type CredentialsError struct{ reason error }

// Error implements error.
func (e *CredentialsError) Error() string { return e.reason.Error() }

// Unwrap returns the reason.
func (e *CredentialsError) Unwrap() error { return e.reason }
