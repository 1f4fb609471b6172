package oidc

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	jose "gopkg.in/go-jose/go-jose.v2"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/client-go/util/cert"
)

const (
	// requestTimeout bounds a request to a provider.
	requestTimeout = 30 * time.Second
	// maxBody bounds what is read of an answer of a provider.
	maxBody = 1 << 20
	// maxFetches is how often keys can be fetched at once, and fetchRate how often a second after that: whoever can reach this server can
	// make it fetch keys, with tokens that name unknown ones.
	maxFetches, fetchRate = 10, 1
)

// newClient returns a client for requests to the issuer's provider. It goes through the proxy of the environment, as upstream's does.
func newClient(issuer *apiserver.Issuer, clusterDial func(context.Context, string, string) (net.Conn, error)) (*http.Client, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if issuer.EgressSelectorType == apiserver.EgressSelectorCluster {
		if clusterDial == nil {
			return nil, fmt.Errorf("oidc: egress lookup for %q is not configured", issuer.EgressSelectorType)
		}
		transport.DialContext = clusterDial
	}
	if issuer.CertificateAuthority != "" {
		roots, err := certPool(issuer.CertificateAuthority)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = roots
	}
	var roundTripper http.RoundTripper = &boundedTransport{utilnet.SetTransportDefaults(transport)}
	if issuer.DiscoveryURL != "" {
		to, err := url.Parse(issuer.DiscoveryURL)
		if err != nil {
			return nil, fmt.Errorf("oidc: invalid discovery URL: %w", err)
		}
		roundTripper = &discoveryTransport{roundTripper, strings.TrimSuffix(issuer.URL, "/") + "/.well-known/openid-configuration", to}
	}
	return &http.Client{Transport: roundTripper, Timeout: requestTimeout}, nil
}

func certPool(pem string) (*x509.CertPool, error) {
	pool, err := cert.NewPoolFromBytes([]byte(pem))
	if err != nil {
		return nil, fmt.Errorf("Failed to read the CA contents: %w", err) // upstream's text
	}
	return pool, nil
}

// boundedTransport bounds the bodies of answers.
type boundedTransport struct{ http.RoundTripper }

func (t *boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &boundedBody{answer.Body, maxBody}
	}
	return answer, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if n > b.left {
		return b.left, fmt.Errorf("the answer is larger than %d bytes", maxBody)
	}
	b.left -= n
	return n, err
}

// discoveryTransport gets the provider's configuration from another URL than the issuer's.
type discoveryTransport struct {
	http.RoundTripper
	from string
	to   *url.URL
}

func (t *discoveryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && r.URL.String() == t.from {
		r = r.Clone(r.Context())
		r.URL, r.Host = t.to, ""
	}
	return t.RoundTripper.RoundTrip(r)
}

// keyTransport bounds how often a provider's keys are fetched. It answers with the keys that it has when they are asked for too often.
type keyTransport struct {
	base    http.RoundTripper
	fetched func(keySet []byte, ok bool) // called after each fetch, unless nil
	limit   *rate.Limiter

	mu   sync.Mutex
	keys []byte // those of the last fetch that succeeded
}

func newKeyTransport(base http.RoundTripper) *keyTransport {
	return &keyTransport{base: base, limit: rate.NewLimiter(fetchRate, maxFetches)}
}

var errTooManyFetches = errors.New("the keys are fetched too often")

func (t *keyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.limit.Allow() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.keys == nil {
			return nil, errTooManyFetches
		}
		return &http.Response{Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(t.keys)), ContentLength: int64(len(t.keys))}, nil
	}
	answer, err := t.base.RoundTrip(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.note(nil, false)
		return answer, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.note(nil, false)
		return nil, fmt.Errorf("error reading JWKS response: %w", err)
	}
	var keySet jose.JSONWebKeySet
	valid := json.Unmarshal(body, &keySet) == nil
	if valid {
		t.mu.Lock()
		t.keys = body
		t.mu.Unlock()
	}
	t.note(body, valid)
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, nil
}

func (t *keyTransport) note(keySet []byte, ok bool) {
	if t.fetched != nil {
		t.fetched(keySet, ok)
	}
}
