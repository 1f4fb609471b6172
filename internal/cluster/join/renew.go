package join

import (
	"bytes"
	"context"
	"net/http"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// How long to wait after a renewal failed, and how long at most to sleep: timers do not notice that a clock was set or a machine was suspended.
const (
	firstPatience = 500 * time.Millisecond
	lastPatience  = 5 * time.Minute
	longestSleep  = time.Minute
	shortestSleep = 100 * time.Millisecond
)

// Run renews certificates until ctx ends, and first gets the one to serve with if there is none.
func (id *Identity) Run(ctx context.Context) {
	retry := firstPatience
	for {
		sleep := longestSleep
		if err := id.renew(ctx); err != nil && ctx.Err() == nil {
			id.o.Log.Warn("a certificate could not be renewed", "node", id.o.Node, "error", err)
			sleep, retry = retry, min(2*retry, lastPatience)
		} else {
			retry = firstPatience
			sleep = max(min(sleep, id.due().Sub(id.o.Now())), shortestSleep)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(sleep):
		}
	}
}

// due is when something is to be renewed.
func (id *Identity) due() time.Time {
	client, serving := id.client.Load(), id.serving.Load()
	if serving == nil || serving.due.After(client.due) {
		return client.due
	}
	return serving.due
}

// renew renews what is due.
func (id *Identity) renew(ctx context.Context) error {
	now := id.o.Now()
	if !now.Before(id.client.Load().due) {
		if err := id.renewClient(ctx); err != nil {
			return err
		}
	}
	if serving := id.serving.Load(); serving == nil || !now.Before(serving.due) {
		certPEM, keyPEM, err := ask(ctx, id.requests, wish{signer: certificatesv1.KubeletServingSignerName, node: id.o.Node, hosts: id.o.Hosts, use: certificatesv1.UsageServerAuth}, id.o.Log)
		if err != nil {
			return err
		}
		return id.keep(servingName, certPEM, keyPEM, nil)
	}
	return nil
}

func (id *Identity) renewClient(ctx context.Context) error {
	if end := id.client.Load().tls.Leaf.NotAfter; !id.o.Now().Before(end) {
		if id.o.Token == nil {
			return refused("the node's certificate has ended at %v, before it could be renewed: start the agent again with --token", end)
		}
		return id.join(ctx) // the server was away for too long
	}
	certPEM, keyPEM, err := ask(ctx, id.requests, wish{signer: certificatesv1.KubeAPIServerClientKubeletSignerName, node: id.o.Node, use: certificatesv1.UsageClientAuth}, id.o.Log)
	if err != nil {
		return err
	}
	return id.keep(clientName, certPEM, keyPEM, id.newTrust(ctx))
}

// newTrust is whom to trust from now on, if that has changed. It is asked of a server that is trusted.
func (id *Identity) newTrust(ctx context.Context) []byte {
	bundle, err := getBundle(ctx, &http.Client{Transport: id.transport, Timeout: requestTime}, id.o.Server)
	if err != nil {
		id.o.Log.Warn("whether the cluster's authority is new cannot be found out", "error", err)
		return nil
	}
	if bytes.Equal(bundle, id.Bundle()) {
		return nil
	}
	if err := id.setTrust(bundle); err != nil {
		id.o.Log.Warn("what the cluster says of its authority is not used", "error", err)
		return nil
	}
	return bundle
}
