package encryption

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/utils/clock"
)

// Options are the options of the encryption of a server.
type Options struct {
	File   string        // with an EncryptionConfiguration
	Reload bool          // whether the file is read again when it changes
	Every  time.Duration // how often it is looked at: a minute if 0
	// ServerID tells this server from others in metrics.
	ServerID string
	// Metrics is where the metrics are registered; nowhere if nil.
	Metrics prometheus.Registerer
	// Reloaded is called after another configuration was applied. It may be nil.
	Reloaded func()
	Clock    clock.WithTicker // the real one if nil
	Log      *slog.Logger
}

// Encryption encrypts and decrypts the values of resources, as its configuration says at the moment.
type Encryption struct {
	opts    Options
	metrics *metrics
	current atomic.Pointer[configuration]
	running sync.WaitGroup
	stop    context.CancelFunc
	watch   func() // nil if the file is read only once
}

// New returns the encryption that a file configures. Close ends it.
func New(opts Options) (*Encryption, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Every == 0 {
		opts.Every = reloadEvery
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	e := &Encryption{opts: opts, metrics: newMetrics(opts.ServerID, opts.Metrics)}
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	data, hash, err := readFile(opts.File)
	if err != nil {
		err = fmt.Errorf("error while loading file: %w", err)
	}
	var c *configuration
	if err == nil {
		c, err = e.load(ctx, data, hash)
	}
	if err != nil {
		e.Close()
		return nil, fmt.Errorf("--encryption-provider-config: %w", err)
	}
	e.current.Store(c)
	e.metrics.applied(hash)
	if opts.Reload {
		e.watch = func() { e.running.Go(func() { e.watchFile(ctx) }) }
	}
	return e, nil
}

// Run begins to apply the file when it changes, if that is asked for.
func (e *Encryption) Run() {
	if e.watch != nil {
		e.watch()
	}
}

// Close ends the connections to plugins and the goroutines.
func (e *Encryption) Close() {
	e.stop()
	e.running.Wait()
}

// Checked reports whether there are plugins to check, or may be after a reload.
func (e *Encryption) Checked() bool { return e.opts.Reload || len(e.current.Load().plugins) > 0 }

// CheckPlugins returns why KMS plugins cannot be used, or nil: the health check kms-providers.
func (e *Encryption) CheckPlugins(ctx context.Context) error { return e.current.Load().check(ctx) }

// ForResource returns the transformer of a resource, which always does as the current configuration says.
func (e *Encryption) ForResource(gr schema.GroupResource) Transformer {
	return &resource{e: e, gr: gr}
}

// resource is the transformer of a resource.
type resource struct {
	e     *Encryption
	gr    schema.GroupResource
	bound atomic.Pointer[bound]
}

// bound is the providers of a resource in one configuration.
type bound struct {
	configuration *configuration
	providers     *list
}

func (r *resource) providers() *list {
	current := r.e.current.Load()
	b := r.bound.Load()
	if b == nil || b.configuration != current {
		b = &bound{current, current.providersOf(r.gr).bind(r.e.metrics, r.gr.String())}
		r.bound.Store(b)
	}
	return b.providers
}

func (r *resource) ToStorage(ctx context.Context, key string, value []byte) ([]byte, error) {
	l := r.providers()
	if first := l.providers[0]; first.provider == (identity{}) {
		first.count.toStorage(time.Now(), nil)
		return value, nil
	}
	return l.seal(ctx, make([]byte, 0, len(value)+l.overhead()), key, value)
}

func (r *resource) FromStorage(ctx context.Context, key string, stored []byte) ([]byte, bool, error) {
	return r.providers().open(ctx, key, stored)
}

// configuration is what one state of the file says.
type configuration struct {
	hash      string
	resources map[schema.GroupResource][]prefixed
	plugins   []*kms
	timeouts  time.Duration // of all plugins together
	close     context.CancelFunc
}

// providersOf returns the providers of a resource: of an entry for itself, for its group, or for everything.
func (c *configuration) providersOf(gr schema.GroupResource) *list {
	for _, name := range []schema.GroupResource{gr, {Group: gr.Group, Resource: "*"}, anything} {
		if providers := c.resources[name]; providers != nil {
			return &list{providers: providers, none: errors.New("no matching prefix found")}
		}
	}
	return &list{providers: []prefixed{{provider: identity{}}}, none: ErrEncrypted}
}

// check returns why plugins cannot be used, or nil.
func (c *configuration) check(ctx context.Context) error {
	var errs []error
	for i, p := range c.plugins {
		if err := p.check(ctx); err != nil {
			errs = append(errs, fmt.Errorf("kms-provider-%d: %w", i, err))
		}
	}
	return utilerrors.Reduce(utilerrors.NewAggregate(errs))
}

// The prefixes of what providers store.
const (
	aescbcPrefix    = "k8s:enc:aescbc:v1:"
	aesgcmPrefix    = "k8s:enc:aesgcm:v1:"
	secretboxPrefix = "k8s:enc:secretbox:v1:"
	kmsPrefix       = "k8s:enc:kms:v2:"
)

// load returns the configuration that a file contains, and starts to probe its plugins.
func (e *Encryption) load(ctx context.Context, data []byte, hash string) (c *configuration, err error) {
	config, err := decode(e.opts.File, data, e.opts.Reload)
	if err != nil {
		return nil, fmt.Errorf("error while parsing file: %w", err)
	}
	c = &configuration{hash: hash, resources: map[schema.GroupResource][]prefixed{}}
	ctx, c.close = context.WithCancel(ctx)
	for _, entry := range config.Resources {
		var providers []prefixed
		for _, p := range entry.Providers {
			made, err := e.provider(ctx, c, p)
			if err != nil {
				c.close()
				return nil, fmt.Errorf("error while building transformers: %w", err)
			}
			providers = append(providers, made)
		}
		for _, name := range entry.Resources {
			gr := schema.ParseGroupResource(name)
			for _, wildcard := range []schema.GroupResource{{Group: gr.Group, Resource: "*"}, anything} {
				if c.resources[wildcard] != nil {
					c.close()
					return nil, fmt.Errorf("error while building transformers: resource %q is masked by earlier rule %q", nameOf(gr), nameOf(wildcard))
				}
			}
			c.resources[gr] = append(c.resources[gr], providers...)
		}
	}
	return c, nil
}

// nameOf returns a resource as the configuration names it.
func nameOf(gr schema.GroupResource) string {
	if gr.Group == "" && gr.Resource == "*" {
		return "*."
	}
	return gr.String()
}

// provider makes a provider of a valid configuration. It adds a plugin to c.
func (e *Encryption) provider(ctx context.Context, c *configuration, p apiserver.ProviderConfiguration) (prefixed, error) {
	switch {
	case p.AESGCM != nil:
		return keyed(aesgcmPrefix, "AES", p.AESGCM.Keys, aesWith(newGCM))
	case p.AESCBC != nil:
		return keyed(aescbcPrefix, "AES", p.AESCBC.Keys, aesWith(newCBC))
	case p.Secretbox != nil:
		return keyed(secretboxPrefix, "Secretbox", p.Secretbox.Keys, func(key []byte) (provider, error) { return &box{[32]byte(key)}, nil })
	case p.KMS != nil:
		return e.kmsProvider(ctx, c, p.KMS)
	}
	return prefixed{provider: identity{}}, nil
}

func aesWith(mode func(cipher.Block) (provider, error)) func(key []byte) (provider, error) {
	return func(key []byte) (provider, error) {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		return mode(block)
	}
}

// keyed returns the provider with several keys, of which the first encrypts. What it stores names the key.
func keyed(prefix, kind string, keys []apiserver.Key, with func(key []byte) (provider, error)) (prefixed, error) {
	l := &list{none: fmt.Errorf("no matching key was found for the provided %s transformer", kind)}
	for _, key := range keys {
		secret, err := base64.StdEncoding.DecodeString(key.Secret)
		if err != nil {
			return prefixed{}, fmt.Errorf("could not obtain secret for named key %s: %w", key.Name, err)
		}
		p, err := with(secret)
		if err != nil {
			return prefixed{}, fmt.Errorf("error while creating cipher for named key %s: %w", key.Name, err)
		}
		l.providers = append(l.providers, prefixed{prefix: key.Name + ":", provider: p})
	}
	return prefixed{prefix: prefix, provider: l}, nil
}

// kmsProvider connects to a plugin and asks it for its state. A plugin that does not answer is no error: it may start after the server.
func (e *Encryption) kmsProvider(ctx context.Context, c *configuration, config *apiserver.KMSConfiguration) (prefixed, error) {
	if config.APIVersion == "v1" {
		return prefixed{}, errors.New("KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.") //nolint:staticcheck // upstream's words
	}
	p, err := dial(config.Endpoint, config.Timeout.Duration, func(method string, took time.Duration, err error) { e.metrics.called(config.Name, method, took, err) })
	if err != nil {
		return prefixed{}, fmt.Errorf("could not configure KMSv2-Plugin's probe %q, error: %w", config.Name, err)
	}
	k := newKMS(config.Name, p, e.opts.Clock, e.metrics, e.opts.Log)
	c.plugins = append(c.plugins, k)
	c.timeouts += config.Timeout.Duration
	_ = k.check(ctx) // logged, and a health check
	e.running.Go(func() { k.run(ctx, e.opts.Clock) })
	return prefixed{prefix: kmsPrefix + config.Name + ":", provider: k}, nil
}
