package apiserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/encryption"
	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// addEncryption reads the configuration of encryption, if there is one.
func (s *Server) addEncryption() (err error) {
	if s.opts.EncryptionFile == "" {
		return nil
	}
	host, _ := os.Hostname() // only a label of metrics
	s.encryption, err = encryption.New(encryption.Options{File: s.opts.EncryptionFile, Reload: s.opts.ReloadEncryption, Every: s.opts.ReloadEncryptionEvery, ServerID: "apiserver-" + host,
		Metrics: s.api.Metrics.Registry, Reloaded: s.encryptionReloaded, Log: s.opts.Log})
	return err
}

// kmsProviders returns the health check of that name; nil if there are no plugins to check.
func (s *Server) kmsProviders() func(context.Context) error {
	if s.encryption == nil || !s.encryption.Checked() {
		return nil
	}
	return s.encryption.CheckPlugins
}

// checkReadable reports whether the server may start: not if stored objects cannot be decrypted with the keys of the configuration. Objects whose keys a KMS
// plugin has do not keep it from starting, since the plugin may be a pod: reads of their resources fail meanwhile.
func (s *Server) checkReadable() bool {
	var refused []error
	for _, err := range s.feed.Unreadable(s.stopping) {
		if encryption.Temporary(err) {
			s.opts.Log.Warn("stored objects cannot be decrypted yet", "err", err)
			continue
		}
		refused = append(refused, err)
	}
	if len(refused) == 0 || s.stopping.Err() != nil {
		return true
	}
	err := fmt.Errorf("the server does not start, as stored objects cannot be decrypted: give it the keys that they were encrypted with by --encryption-provider-config: %w", errors.Join(refused...))
	s.startFailure.Store(&err)
	return false
}

// encryptionReloaded is called when the configuration of encryption has changed.
func (s *Server) encryptionReloaded() {
	s.feed.RetryUnreadable()
	select {
	case s.rewrite <- struct{}{}:
	default:
	}
}

// rewriteSecrets writes the Secrets again that are stored in another way than they would be today, now and whenever the configuration of encryption has changed,
// until ctx ends. A Secret that others write meanwhile is encrypted by that.
func (s *Server) rewriteSecrets(ctx context.Context) {
	secrets := s.api.Endpoint("", "v1", "secrets").Registry
	for {
		var rewritten, failed int
		secrets.Cache.Snapshot().Ascend("", "", func(it *cache.Item) bool {
			again, _, err := secrets.Update(ctx, registry.Update{Namespace: it.Namespace, Name: it.Name, Unchecked: true, Write: loopbackWrite(),
				Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) { return current, nil }})
			switch {
			case err == nil && again.Revision != it.Revision:
				rewritten++
			case err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil:
				failed++
				s.opts.Log.Error("failed to encrypt a Secret with the current key", "namespace", it.Namespace, "name", it.Name, "err", err)
			}
			return ctx.Err() == nil
		})
		if rewritten > 0 || failed > 0 {
			s.opts.Log.Info("rewrote the Secrets that were not encrypted with the current key", "rewritten", rewritten, "failed", failed)
		}
		var retry <-chan time.Time
		if failed > 0 {
			retry = time.After(rewriteRetry)
		}
		select {
		case <-s.rewrite:
		case <-retry:
		case <-ctx.Done():
			return
		}
	}
}

// rewriteRetry is how long after a failure Secrets are rewritten again.
const rewriteRetry = time.Minute
