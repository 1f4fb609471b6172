package oidc

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/configfile"
)

const (
	// recheckInterval is how often the file is checked for changes.
	recheckInterval = time.Second
	// reloadTimeout bounds how long the providers of a new configuration may take to answer, unless Options say otherwise.
	reloadTimeout = time.Minute
	// replacedLifetime is how long a configuration that was replaced goes on for the requests that still use it.
	replacedLifetime = time.Minute
)

// File authenticates the tokens of the issuers in a file, and follows it. Without a file its configuration stays what it was at first.
type File struct {
	path      string // empty for none
	anonymous *apiserver.AnonymousAuthConfig
	options   Options
	stopping  context.Context
	current   atomic.Pointer[generation]

	checking sync.Mutex
	loaded   os.FileInfo // of the file that was read last; nil if it could not be read
	data     []byte      // what was read last, and need not be tried again
	retryAt  time.Time   // when to try the file again, if it cannot be used now but may be later; zero if not
	running  sync.WaitGroup
}

// generation is one content of the file.
type generation struct {
	*Issuers
	names  []string
	cancel context.CancelFunc
}

// NewFile returns an authenticator of tokens of the issuers in the configuration, which is the content of the file at path. It follows the
// file as long as Run runs, which must not be longer than ctx.
func NewFile(ctx context.Context, path string, data []byte, config *apiserver.AuthenticationConfiguration, o Options) (*File, error) {
	o.ReloadTimeout = cmp.Or(o.ReloadTimeout, reloadTimeout)
	f := &File{path: path, data: data, anonymous: config.Anonymous.DeepCopy(), options: o, stopping: ctx}
	first, err := f.generation(config)
	if err != nil {
		return nil, err
	}
	f.current.Store(first)
	if path != "" {
		o.Metrics.applied(data)
	}
	return f, nil
}

func (f *File) generation(config *apiserver.AuthenticationConfiguration) (*generation, error) {
	ctx, cancel := context.WithCancel(f.stopping)
	issuers, err := New(ctx, config.JWT, f.options)
	if err != nil {
		cancel()
		return nil, err
	}
	g := &generation{Issuers: issuers, cancel: cancel}
	for _, jwt := range config.JWT {
		g.names = append(g.names, jwt.Issuer.URL)
	}
	return g, nil
}

// Authenticate returns the user of a token, nil if none of the issuers is the token's.
func (f *File) Authenticate(ctx context.Context, token string) (*authn.User, error) {
	return f.current.Load().Authenticate(ctx, token)
}

// Healthy returns why providers cannot be used yet, or nil.
func (f *File) Healthy() error { return f.current.Load().Healthy() }

// Reach returns when the providers have answered, or the context of NewFile ends.
func (f *File) Reach() { f.current.Load().Run() }

// Run reaches the providers and follows the file, until the context of NewFile ends.
func (f *File) Run() {
	defer f.running.Wait()
	f.running.Go(f.Reach)
	if f.path == "" {
		return
	}
	ticker := time.NewTicker(recheckInterval)
	defer ticker.Stop()
	for {
		f.Check()
		select {
		case <-f.stopping.Done():
			return
		case <-ticker.C:
		}
	}
}

// Check reloads the file if it has changed, and returns when its configuration is in use or cannot be.
func (f *File) Check() {
	f.checking.Lock()
	defer f.checking.Unlock()
	if !f.changed() {
		return
	}
	data, err := configfile.Read(f.path)
	if err != nil {
		f.failed(err, true)
		return
	}
	if bytes.Equal(data, f.data) {
		f.retryAt = time.Time{}
		return
	}
	config, err := f.parse(data)
	if err != nil {
		f.data = data
		f.failed(err, false)
		return
	}
	if err := f.replace(config); err != nil {
		f.failed(err, true)
		return
	}
	f.data, f.retryAt = data, time.Time{}
	f.options.Log.Info("reloaded authentication config", "file", f.path)
	f.options.Metrics.reloaded(true)
	f.options.Metrics.applied(data)
}

// changed reports whether the file is not the one that was read last, or has to be tried again.
func (f *File) changed() bool {
	now := f.options.Clock.Now()
	info, err := os.Stat(f.path)
	old := f.loaded
	f.loaded = info
	if err != nil {
		f.loaded = nil
		return old != nil || !now.Before(f.retryAt)
	}
	if old != nil && os.SameFile(info, old) && info.ModTime().Equal(old.ModTime()) && info.Size() == old.Size() {
		return !f.retryAt.IsZero() && !now.Before(f.retryAt)
	}
	return true
}

// failed says that the file cannot be used, and when to try it again if it may be used later.
func (f *File) failed(err error, later bool) {
	f.retryAt = time.Time{}
	if later {
		f.retryAt = f.options.Clock.Now().Add(f.options.ReloadTimeout)
	}
	if f.stopping.Err() == nil {
		f.options.Log.Error("failed to reload the authentication config, the previous one stays in use", "file", f.path, "err", err)
		f.options.Metrics.reloaded(false)
	}
}

// parse returns the configuration in data. What it says of anonymous requests must not change: upstream wants it so, too.
func (f *File) parse(data []byte) (*apiserver.AuthenticationConfiguration, error) {
	config, err := configfile.Parse(data)
	if err != nil {
		return nil, err
	}
	errs := configfile.Validate(config, f.options.DisallowedIssuers)
	if !reflect.DeepEqual(f.anonymous, config.Anonymous) {
		errs = append(errs, field.Forbidden(field.NewPath("anonymous"), "changed from initial configuration file"))
	}
	return config, errs.ToAggregate()
}

// replace puts a configuration into use when all of its providers have answered.
func (f *File) replace(config *apiserver.AuthenticationConfiguration) error {
	next, err := f.generation(config)
	if err != nil {
		return err
	}
	reached := make(chan struct{})
	f.running.Go(func() {
		next.Run()
		close(reached)
	})
	timeout := time.NewTimer(f.options.ReloadTimeout)
	defer timeout.Stop()
	select {
	case <-reached:
		err = next.Healthy()
	case <-timeout.C:
		err = fmt.Errorf("providers have not answered within %v: %w", f.options.ReloadTimeout, next.Healthy())
	}
	if err != nil {
		next.cancel()
		return err
	}
	f.retire(f.current.Swap(next), next)
	return nil
}

// retire ends a generation when requests that still use it have ended.
func (f *File) retire(old, next *generation) {
	removed := map[string]bool{}
	for _, name := range old.names {
		removed[name] = true
	}
	for _, name := range next.names {
		delete(removed, name)
	}
	f.running.Go(func() {
		timer := time.NewTimer(replacedLifetime)
		defer timer.Stop()
		select {
		case <-f.stopping.Done():
		case <-timer.C:
		}
		old.cancel()
		for name := range removed {
			f.options.Metrics.forget(name)
		}
	})
}
