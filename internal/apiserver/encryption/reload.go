package encryption

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
)

const (
	reloadEvery      = time.Minute // how often the file is read
	firstReloadRetry = time.Second // after a failure, doubled up to reloadEvery
	leastHealthWait  = 10 * time.Second
	healthCheckEvery = 100 * time.Millisecond
	graceFactor      = 2 // how many of all plugins' timeouts the former configuration is kept for requests under way
)

// watchFile applies the file whenever it has changed, until ctx ends. A file that cannot be applied leaves the current configuration as it is.
func (e *Encryption) watchFile(ctx context.Context) {
	for wait, retry := time.Duration(0), firstReloadRetry; ; {
		if !sleep(ctx, e.opts.Clock, wait) {
			return
		}
		switch changed, err := e.reload(ctx); {
		case err != nil && ctx.Err() != nil:
			return
		case err != nil:
			e.metrics.reloaded(err)
			e.opts.Log.Error("failed to reload the encryption configuration; the former stays in use", "file", e.opts.File, "err", err)
			wait, retry = retry, min(2*retry, reloadEvery)
			continue
		case changed:
			e.metrics.reloaded(nil)
			e.metrics.applied(e.current.Load().hash)
			e.opts.Log.Info("reloaded the encryption configuration", "file", e.opts.File)
			if e.opts.Reloaded != nil {
				e.opts.Reloaded()
			}
		}
		wait, retry = e.opts.Every, firstReloadRetry
	}
}

// sleep waits for d. It returns false if ctx ends before.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// reload applies the file if it has changed.
func (e *Encryption) reload(ctx context.Context) (changed bool, err error) {
	data, hash, err := readFile(e.opts.File)
	if err != nil {
		return false, err
	}
	former := e.current.Load()
	if hash == former.hash {
		return false, nil
	}
	next, err := e.load(ctx, data, hash)
	if err != nil {
		return false, err
	}
	if err := e.awaitHealth(ctx, next); err != nil {
		next.close()
		return false, err
	}
	e.current.Store(next)
	e.running.Go(func() {
		sleep(ctx, e.opts.Clock, graceFactor*former.timeouts)
		former.close()
	})
	return true, nil
}

// awaitHealth waits until the plugins of a configuration can be used.
func (e *Encryption) awaitHealth(ctx context.Context, c *configuration) error {
	ctx, cancel := context.WithTimeout(ctx, max(leastHealthWait, graceFactor*c.timeouts))
	defer cancel()
	for {
		err := c.check(ctx)
		if err == nil {
			return nil
		}
		if !sleep(ctx, e.opts.Clock, healthCheckEvery) {
			return fmt.Errorf("health check for new transformers failed: %w", err)
		}
	}
}
