package join

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// AuthoritiesPath is the path at which a server serves the authorities of its certificate to everybody.
	AuthoritiesPath = "/cacerts"

	maxBundle      = 1 << 20 // bytes
	requestTimeout = 10 * time.Second
	defaultPort    = "6443"
)

// ServerURL parses the address of a server as a person gives it, and adds the scheme and the port if they are missing.
func ServerURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, errors.New("--server is needed: the URL of the API, such as https://192.0.2.1:6443")
	}
	whole := text
	if !strings.Contains(text, "://") {
		whole = "https://" + text
	}
	u, err := url.Parse(whole)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, fmt.Errorf("--server %q is not like https://192.0.2.1:6443", text)
	case u.Scheme != "https":
		return nil, fmt.Errorf("--server %q does not begin with https://, which is needed", text)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// fetchTrust returns the authorities of a server, in PEM, if the pinned one is among them and has signed the server's certificate.
func fetchTrust(ctx context.Context, server *url.URL, pin Pin) ([]byte, error) {
	// Nothing is sent that a forged server could use, and what it returns is trusted only if it has the pin.
	untrusted, err := getAuthorities(ctx, server, &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	certificates, err := parseBundle(untrusted)
	if err != nil {
		return nil, refused("%s returned no authorities at %s: %v. Is it a skiff server?", server, AuthoritiesPath, err)
	}
	pinned := x509.NewCertPool()
	pinFound := false
	for _, c := range certificates {
		if pinOf(c) == pin {
			pinned.AddCert(c)
			pinFound = true
		}
	}
	if !pinFound {
		return nil, refused("the authority of the cluster at %s is not the one that the token is pinned to (%s, but the server shows %s): this is another cluster, or somebody is in between. "+
			"Nothing has been told to it", server, pin, pinOf(certificates[0]))
	}
	bundle, err := getAuthorities(ctx, server, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pinned})
	if err != nil {
		return nil, err
	}
	if _, err := parseBundle(bundle); err != nil {
		return nil, err
	}
	return bundle, nil
}

// getAuthorities fetches the authorities of a server over a connection of its own.
func getAuthorities(ctx context.Context, server *url.URL, config *tls.Config) ([]byte, error) {
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, TLSHandshakeTimeout: requestTimeout}
	return getBundle(ctx, &http.Client{Transport: transport, Timeout: requestTimeout}, server)
}

// getBundle fetches the authorities of a server.
func getBundle(ctx context.Context, client *http.Client, server *url.URL) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.JoinPath(AuthoritiesPath).String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return nil, refused("%s does not show a certificate of the cluster's authority for that address (give the server --tls-san for further names and addresses): %v", server, untrusted.Err)
	}
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, refused("%s returned no authorities at %s: it answered %s. Is it a skiff server?", server, AuthoritiesPath, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, maxBundle))
}

// Refused is an error that trying again does not change.
type Refused struct{ message string }

// Error returns the reason.
func (r *Refused) Error() string { return r.message }

func refused(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }
