package config

import (
	"bytes"
	"context"
	"os"
	"reflect"
	"sync/atomic"
	"time"

	api "k8s.io/apiserver/pkg/apis/apiserver"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
)

const (
	// checkInterval is how often the file is looked at, and readInterval how often it is read although it looks unchanged.
	checkInterval = time.Second
	readInterval  = time.Minute
)

// reload has the authorizers of a configuration file, as it was when it was last valid.
type reload struct {
	current atomic.Pointer[authz.Chain]

	required []string // the modes that every configuration must have
	config   *api.AuthorizationConfiguration
	data     []byte      // that was last read
	failing  string      // why the file could not be read the last time; empty if it could
	info     os.FileInfo // of the file that was last read; nil if it could not be
	readAt   time.Time
}

var (
	_ authz.Authorizer      = (*reload)(nil)
	_ authz.RulesAuthorizer = (*reload)(nil)
)

// Authorize asks the authorizers of the configuration.
func (r *reload) Authorize(ctx context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	return r.current.Load().Authorize(ctx, a)
}

// RulesFor returns the rules of the authorizers of the configuration.
func (r *reload) RulesFor(ctx context.Context, user *authn.User, namespace string) (authz.Rules, error) {
	return r.current.Load().RulesFor(ctx, user, namespace)
}

// loadFirst loads the configuration file, which must be valid.
func (a *Authorization) loadFirst() (*reload, *api.AuthorizationConfiguration, error) {
	data, err := readFile(a.options.ConfigFile)
	if err != nil {
		return nil, nil, err
	}
	c, err := parse(data, nil)
	if err != nil {
		return nil, nil, err
	}
	a.metrics.applied(a.parts.ServerID, data)
	return &reload{required: lastingModes(c), config: c, data: data}, c, nil
}

// Reloads reports whether Run has anything to do.
func (a *Authorization) Reloads() bool { return a.reload != nil }

// Run loads the configuration file again whenever it changes, until ctx ends.
func (a *Authorization) Run(ctx context.Context) {
	if a.reload == nil {
		return
	}
	ticker := a.parts.Clock.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			a.closeWebhooks()
			return
		case <-ticker.C():
			a.check()
		}
	}
}

// check loads the file again if it looks changed, or has not been read for a while.
func (a *Authorization) check() {
	r := a.reload
	info, err := os.Stat(a.options.ConfigFile)
	same := err == nil && r.info != nil && os.SameFile(info, r.info) && info.ModTime().Equal(r.info.ModTime()) && info.Size() == r.info.Size()
	if same && a.parts.Clock.Since(r.readAt) < readInterval {
		return
	}
	r.readAt = a.parts.Clock.Now()
	var data []byte
	if err == nil {
		data, err = readFile(a.options.ConfigFile)
	}
	if err != nil {
		if r.info = nil; r.failing != err.Error() {
			r.failing = err.Error()
			a.failed(err)
		}
		return
	}
	r.info, r.failing = info, ""
	if bytes.Equal(data, r.data) {
		return
	}
	r.data = data
	if err := a.apply(data); err != nil {
		a.failed(err)
	}
}

// apply replaces the authorizers by those of another configuration, if it is valid.
func (a *Authorization) apply(data []byte) error {
	r := a.reload
	c, err := parse(data, r.required)
	if err != nil {
		return err
	}
	if reflect.DeepEqual(c, r.config) {
		return nil
	}
	chain, webhooks, err := a.build(c)
	if err != nil {
		return err
	}
	a.closeWebhooks()
	r.config, a.webhooks = c, webhooks
	r.current.Store(&chain)
	a.metrics.reloaded(a.parts.ServerID, "success", a.parts.Clock.Now())
	a.metrics.applied(a.parts.ServerID, data)
	a.parts.Log.Info("reloaded the authorization configuration", "file", a.options.ConfigFile)
	return nil
}

func (a *Authorization) failed(err error) {
	a.parts.Log.Error("failed to reload the authorization configuration, the previous one stays in use", "file", a.options.ConfigFile, "err", err)
	a.metrics.reloaded(a.parts.ServerID, "failure", a.parts.Clock.Now())
}

func (a *Authorization) closeWebhooks() {
	for _, w := range a.webhooks {
		w.Close()
	}
}
