package join

import (
	"bytes"
	"context"
	"net/http"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

const (
	// minRenewBackoff and maxRenewBackoff bound the back-off after a failed renewal.
	minRenewBackoff = 500 * time.Millisecond
	maxRenewBackoff = 5 * time.Minute
	// maxSleep bounds the time between two checks: timers do not notice that the clock was set or the machine was suspended.
	maxSleep = time.Minute
	minSleep = 100 * time.Millisecond
)

// Run renews certificates until ctx ends, and first requests the serving certificate if there is none.
func (id *Identity) Run(ctx context.Context) {
	backoff := minRenewBackoff
	for {
		sleep := maxSleep
		if err := id.renew(ctx); err != nil && ctx.Err() == nil {
			id.o.Log.Warn("failed to renew a certificate", "node", id.o.Node, "error", err)
			sleep, backoff = backoff, min(2*backoff, maxRenewBackoff)
		} else {
			backoff = minRenewBackoff
			sleep = max(min(sleep, id.nextRenewal().Sub(id.o.Now())), minSleep)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(sleep):
		}
	}
}

// nextRenewal returns when the next certificate is to be renewed.
func (id *Identity) nextRenewal() time.Time {
	client, serving := id.client.Load(), id.serving.Load()
	if serving == nil || serving.renewAt.After(client.renewAt) {
		return client.renewAt
	}
	return serving.renewAt
}

// renew renews the certificates that are to be renewed now.
func (id *Identity) renew(ctx context.Context) error {
	now := id.o.Now()
	if !now.Before(id.client.Load().renewAt) {
		if err := id.renewClient(ctx); err != nil {
			return err
		}
	}
	if serving := id.serving.Load(); serving == nil || !now.Before(serving.renewAt) {
		certPEM, keyPEM, err := requestCertificate(ctx, id.requests, certificateSpec{signer: certificatesv1.KubeletServingSignerName, node: id.o.Node, hosts: id.o.Hosts, usage: certificatesv1.UsageServerAuth}, id.o.Log)
		if err != nil {
			return err
		}
		return id.store(servingName, certPEM, keyPEM, nil)
	}
	return nil
}

// renewClient renews the client certificate and the authorities to trust.
func (id *Identity) renewClient(ctx context.Context) error {
	if end := id.client.Load().tls.Leaf.NotAfter; !id.o.Now().Before(end) {
		if id.o.Token == nil {
			return refused("the node's client certificate has expired at %v, before it could be renewed: start the agent again with --token", end)
		}
		return id.join(ctx) // the server could not be reached in time
	}
	certPEM, keyPEM, err := requestCertificate(ctx, id.requests, certificateSpec{signer: certificatesv1.KubeAPIServerClientKubeletSignerName, node: id.o.Node, usage: certificatesv1.UsageClientAuth}, id.o.Log)
	if err != nil {
		return err
	}
	return id.store(clientName, certPEM, keyPEM, id.refreshTrust(ctx))
}

// refreshTrust fetches the authorities from the server, which is trusted, and trusts them from now on. It returns them if they have changed, and nil otherwise.
func (id *Identity) refreshTrust(ctx context.Context) []byte {
	bundle, err := getBundle(ctx, &http.Client{Transport: id.transport, Timeout: requestTimeout}, id.o.Server)
	if err != nil {
		id.o.Log.Warn("failed to fetch the cluster's authorities", "error", err)
		return nil
	}
	if bytes.Equal(bundle, id.Bundle()) {
		return nil
	}
	if err := id.setTrust(bundle); err != nil {
		id.o.Log.Warn("failed to use the cluster's new authorities", "error", err)
		return nil
	}
	return bundle
}
