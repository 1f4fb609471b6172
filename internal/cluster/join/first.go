package join

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"
)

const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// joinPatiently joins as soon as the server can be reached; machines may start in any order.
func (id *Identity) joinPatiently(ctx context.Context) error {
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := id.join(ctx)
		var refused *Refused
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil {
			return err
		}
		id.o.Log.Warn("cannot join yet", "server", id.o.Server.String(), "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// join gets the first client certificate with the token.
func (id *Identity) join(ctx context.Context) error {
	bundle, err := fetchTrust(ctx, id.o.Server, id.o.Token.Pin)
	if err != nil {
		return err
	}
	if err := id.setTrust(bundle); err != nil {
		return err
	}
	config := id.TLS()
	config.GetClientCertificate = nil
	transport := &http.Transport{TLSClientConfig: config, TLSHandshakeTimeout: requestTime}
	defer transport.CloseIdleConnections()
	certificates, err := certificatesclient.NewForConfigAndClient(&rest.Config{Host: id.o.Server.String(), QPS: -1},
		&http.Client{Transport: bearer{transport, id.o.Token.Bearer()}, Timeout: requestTime})
	if err != nil {
		return err
	}
	certPEM, keyPEM, err := id.askFirst(ctx, certificates.CertificateSigningRequests())
	switch {
	case apierrors.IsUnauthorized(err):
		return refused("the cluster at %s does not know the token %s: it is wrong, has expired, or was used up or deleted. \"skiff token create\" on the server makes another", id.o.Server, id.o.Token.ID)
	case apierrors.IsForbidden(err):
		return refused("the token %s is not for joining the cluster: %v", id.o.Token.ID, err)
	case err != nil:
		return fmt.Errorf("asking for a certificate: %w", err)
	}
	return id.keep(clientName, certPEM, keyPEM, bundle)
}

// askFirst asks with the token. A server may know of a token a moment after it was made, so it is given a second and a third chance.
func (id *Identity) askFirst(ctx context.Context, requests certificatesclient.CertificateSigningRequestInterface) (certPEM, keyPEM []byte, err error) {
	for _, pause := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond, 0} {
		certPEM, keyPEM, err = ask(ctx, requests, wish{signer: certificatesv1.KubeAPIServerClientKubeletSignerName, node: id.o.Node, use: certificatesv1.UsageClientAuth}, id.o.Log)
		if pause == 0 || !apierrors.IsUnauthorized(err) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-time.After(pause):
		}
	}
	return certPEM, keyPEM, err
}

// bearer shows a token.
type bearer struct {
	next  http.RoundTripper
	token string
}

// RoundTrip sends a request with the token.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}
