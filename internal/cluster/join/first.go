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
	transport := &http.Transport{TLSClientConfig: config, TLSHandshakeTimeout: requestTime}
	defer transport.CloseIdleConnections()
	certificates, err := certificatesclient.NewForConfigAndClient(&rest.Config{Host: id.o.Server.String(), QPS: -1},
		&http.Client{Transport: bearer{transport, id.o.Token.Bearer()}, Timeout: requestTime})
	if err != nil {
		return err
	}
	keyPEM, made, err := id.firstKey()
	if err != nil {
		return err
	}
	certPEM, err := id.askFirst(ctx, certificates.CertificateSigningRequests(), keyPEM)
	defer func() {
		var refused *Refused
		if made && errors.As(err, &refused) { // nobody knows the key, so nothing of the attempt is left
			_ = os.Remove(id.path(firstKeyName))
		}
	}()
	switch {
	case apierrors.IsUnauthorized(err):
		return refused("the cluster at %s does not know the token %s: it is wrong, has expired, or was used up or deleted. \"skiff token create\" on the server makes another", id.o.Server, id.o.Token.ID)
	case apierrors.IsForbidden(err):
		return refused("the token %s is not for joining the cluster: %v", id.o.Token.ID, err)
	case err != nil:
		return fmt.Errorf("asking for a certificate: %w", err)
	}
	if err := id.keep(clientName, certPEM, keyPEM, bundle); err != nil {
		return err
	}
	return removed(os.Remove(id.path(firstKeyName)))
}

// firstKey returns the key to join with, which is on the disk before it is shown to anybody: the cluster lets a name and a use of a token go to one key, and a machine
// that crashed on the way must come back with the same one. made says that it is new. The key of an earlier certificate of the same cluster is used again: the
// cluster knows the node by it.
func (id *Identity) firstKey() (keyPEM []byte, made bool, err error) {
	for _, name := range []string{firstKeyName, clientName + ".key"} {
		if name != firstKeyName && !id.knownHere {
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
	return keyPEM, true, id.write(firstKeyName, keyPEM)
}

// removed takes it for success that a file was not there.
func removed(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// askFirst asks with the token. A server may know of a token a moment after it was made, so it is given a second and a third chance.
func (id *Identity) askFirst(ctx context.Context, requests certificatesclient.CertificateSigningRequestInterface, keyPEM []byte) (certPEM []byte, err error) {
	w := wish{signer: certificatesv1.KubeAPIServerClientKubeletSignerName, node: id.o.Node, use: certificatesv1.UsageClientAuth, keyPEM: keyPEM}
	for _, pause := range []time.Duration{300 * time.Millisecond, 600 * time.Millisecond, 0} {
		certPEM, _, err = ask(ctx, requests, w, id.o.Log)
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
