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
	// AuthoritiesPath is where a server shows, to everybody, the certificates that its own can be verified with.
	AuthoritiesPath = "/cacerts"

	maxBundle   = 1 << 20
	requestTime = 10 * time.Second // bounds a request
	defaultPort = "6443"
)

// ServerURL is a server's address as a person gives it, with what may be left out.
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
		return nil, fmt.Errorf("--server %q does not begin with https://, and nothing else is spoken to", text)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// fetchTrust returns what a server says is to be trusted, in PEM, if the pinned authority is in it and vouches for the server.
func fetchTrust(ctx context.Context, server *url.URL, pin Pin) ([]byte, error) {
	// Nothing is sent that a forged server could use, and what it answers is believed only if it fits the pin.
	told, err := getAuthorities(ctx, server, &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true})
	if err != nil {
		return nil, err
	}
	certificates, err := parseBundle(told)
	if err != nil {
		return nil, refused("%s does not say whom to trust: %v", server, err)
	}
	pinned := x509.NewCertPool()
	found := false
	for _, c := range certificates {
		if pinOf(c) == pin {
			pinned.AddCert(c)
			found = true
		}
	}
	if !found {
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

func getAuthorities(ctx context.Context, server *url.URL, config *tls.Config) ([]byte, error) {
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true, TLSHandshakeTimeout: requestTime}
	return getBundle(ctx, &http.Client{Transport: transport, Timeout: requestTime}, server)
}

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
		return nil, refused("%s does not say whom to trust: it answers %s. Is it a skiff server?", server, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, maxBundle))
}

// Refused is an answer that trying again does not change.
type Refused struct{ why string }

// Error says why.
func (r *Refused) Error() string { return r.why }

func refused(format string, args ...any) error { return &Refused{fmt.Sprintf(format, args...)} }
