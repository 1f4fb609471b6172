package join

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

const (
	// minJoinBackoff and maxJoinBackoff bound the back-off between attempts to join.
	minJoinBackoff = 200 * time.Millisecond
	maxJoinBackoff = 10 * time.Second
)

// retryJoin joins as soon as the server can be reached, as machines may start in any order.
func (id *Identity) retryJoin(ctx context.Context) error {
	for backoff := minJoinBackoff; ; backoff = min(2*backoff, maxJoinBackoff) {
		err := id.join(ctx)
		var refused *Refused
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil {
			return err
		}
		id.o.Log.Warn("failed to join the cluster; trying again", "server", id.o.Server.String(), "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(backoff):
		}
	}
}

// join requests the first client certificate with the token.
func (id *Identity) join(ctx context.Context) (err error) {
	bundle, err := fetchTrust(ctx, id.o.Server, id.o.Token.Pin)
	if err != nil {
		return err
	}
	if err := id.setTrust(bundle); err != nil {
		return err
	}
	config := id.TLS()
	config.GetClientCertificate = nil
	transport := &http.Transport{TLSClientConfig: config, TLSHandshakeTimeout: requestTimeout}
	defer transport.CloseIdleConnections()
	certificates, err := certificatesclient.NewForConfigAndClient(&rest.Config{Host: id.o.Server.String(), QPS: -1},
		&http.Client{Transport: bearerTransport{transport, id.o.Token.Bearer()}, Timeout: requestTimeout})
	if err != nil {
		return err
	}
	keyPEM, newKey, err := id.joiningKey()
	if err != nil {
		return err
	}
	certPEM, err := id.requestFirst(ctx, certificates.CertificateSigningRequests(), keyPEM)
	defer func() {
		var refused *Refused
		if newKey && errors.As(err, &refused) { // the cluster has not signed the key, so the next attempt can use another
			_ = os.Remove(id.path(joiningKeyName))
		}
	}()
	switch {
	case apierrors.IsUnauthorized(err):
		return refused("the cluster at %s does not know the token %s: it is wrong, has expired, or was used up or deleted. \"skiff token create\" on the server makes another", id.o.Server, id.o.Token.ID)
	case apierrors.IsForbidden(err):
		return refused("the token %s is not for joining the cluster: %v", id.o.Token.ID, err)
	case err != nil:
		return fmt.Errorf("failed to request a client certificate from %s: %w", id.o.Server, err)
	}
	if err := id.store(clientName, certPEM, keyPEM, bundle); err != nil {
		return err
	}
	return ignoreNotExist(os.Remove(id.path(joiningKeyName)))
}

// joiningKey returns the key to join with. It is on disk before its certificate is requested: the cluster gives a node's name and a use of a token to one key, and a
// machine that crashed on the way must come back with the same one. isNew says that it was made now. The key of an earlier certificate of the same cluster is
// used again: the cluster knows the node by it.
func (id *Identity) joiningKey() (keyPEM []byte, isNew bool, err error) {
	for _, name := range []string{joiningKeyName, clientName + ".key"} {
		if name != joiningKeyName && !id.filesOfCluster {
			continue
		}
		keyPEM, err := os.ReadFile(id.path(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, false, err
		}
		if _, err := keyutil.ParsePrivateKeyPEM(keyPEM); err == nil {
			return keyPEM, false, nil
		}
	}
	if keyPEM, err = newKey(); err != nil {
		return nil, false, err
	}
	return keyPEM, true, id.write(joiningKeyName, keyPEM)
}

// ignoreNotExist returns nil for an error that says that a file does not exist.
func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// requestFirst requests the first client certificate. It tries three times if the token is not accepted, as the server may observe a token a moment after its
// creation.
func (id *Identity) requestFirst(ctx context.Context, requests certificatesclient.CertificateSigningRequestInterface, keyPEM []byte) (certPEM []byte, err error) {
	spec := certificateSpec{signer: certificatesv1.KubeAPIServerClientKubeletSignerName, node: id.o.Node, usage: certificatesv1.UsageClientAuth, keyPEM: keyPEM}
	for _, pause := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond, 0} {
		certPEM, _, err = requestCertificate(ctx, requests, spec, id.o.Log)
		if pause == 0 || !apierrors.IsUnauthorized(err) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
	return certPEM, err
}

// bearerTransport adds a bearer token to requests.
type bearerTransport struct {
	next  http.RoundTripper
	token string
}

// RoundTrip sends a request with the token.
func (b bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}
