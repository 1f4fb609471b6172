package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"skiff/internal/store"
)

// Objects that are stored in a form which Kind.Open cannot read are unreadable: encrypted with a key that is not known, or that cannot be asked for now. The cache
// must not take them for deleted. It remembers their keys, so that reads of them fail, and lists and watches of what they belong to. It tries again until it can
// read them.

// UnreadableError is the error of an object whose stored value cannot be opened.
type UnreadableError struct{ Err error }

func (e *UnreadableError) Error() string { return e.Err.Error() }

// Unwrap returns the error of Kind.Open.
func (e *UnreadableError) Unwrap() error { return e.Err }

// maxUnreadable bounds how many keys of unreadable objects a cache remembers. If there are more, any object that it does not hold may be one.
const maxUnreadable = 1000

// unreadableObjects has the unreadable objects by their keys. The key overflow stands for those that are too many.
type unreadableObjects map[string]unreadableObject

type unreadableObject struct {
	key string // in the store
	err error
}

const overflow = ""

// add adds an object in place.
func (u *unreadableObjects) add(key string, o unreadableObject) {
	if *u == nil {
		*u = unreadableObjects{}
	}
	if _, known := (*u)[key]; !known && len(*u) >= maxUnreadable {
		key = overflow
	}
	(*u)[key] = o
}

// without returns the objects without one.
func (u unreadableObjects) without(key string) unreadableObjects {
	if _, ok := u[key]; !ok {
		return u
	}
	if len(u) == 1 {
		return nil
	}
	u = maps.Clone(u)
	delete(u, key)
	return u
}

// noWait is the context with which the feed opens values, as all resources wait for the feed.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Unreadable returns why the object under a key, which Get does not return, cannot be read; nil if there is none.
func (c *Cache) Unreadable(key string) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if o, ok := c.unreadable[key]; ok {
		return o.err
	}
	return c.unreadable[overflow].err
}

// Unreadable returns the error of an object whose key begins with prefix and that cannot be read, so that the snapshot lacks it; nil if there is none.
func (s Snapshot) Unreadable(prefix string) error {
	first := ""
	for key := range s.unreadable {
		if strings.HasPrefix(key, prefix) && (first == "" || key < first) {
			first = key
		}
	}
	o, ok := s.unreadable[first]
	if !ok {
		if o, ok = s.unreadable[overflow]; !ok {
			return nil
		}
	}
	return fmt.Errorf("unable to transform key %q: %w", o.key, o.err)
}

// applyUnreadable applies the event of an object that cannot be read. It invalidates the cursors: their readers go on with the store's history, and learn of the
// error there.
func (c *Cache) applyUnreadable(key string, e store.Event, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Kind.Uncached {
		c.uncached.count(e)
	} else {
		if prev := c.known(key); prev != nil {
			c.drop(prev)
			c.bytes -= int64(len(prev.raw))
			c.feed.guard.retire(prev)
		}
		c.unreadable = maps.Clone(c.unreadable)
		c.unreadable.add(key, unreadableObject{e.Key, err})
		c.feed.startRecovery()
	}
	c.restart(e.Revision)
}

// unreadable logs the error with which an object of the store could not be decoded, and returns why it is unreadable; nil if it is not.
func (f *Feed) unreadable(err error, storeKey string) error {
	if err == nil {
		return nil
	}
	var unreadable *UnreadableError
	if !errors.As(err, &unreadable) {
		f.log.Error("failed to decode an object of the store; it is not served", "key", storeKey, "error", err)
		return nil
	}
	f.log.Error("failed to decrypt an object of the store; reads of it fail until that succeeds", "key", storeKey, "error", err)
	return unreadable.Err
}

// failed adds an object that could not be decoded to those that are unreadable, if it is.
func (f *Feed) failed(u unreadableObjects, key string, err error, storeKey string) unreadableObjects {
	if err := f.unreadable(err, storeKey); err != nil {
		u.add(key, unreadableObject{storeKey, err})
		f.startRecovery()
	}
	return u
}

// recovery tries to open unreadable objects again.
type recovery struct {
	ctx     context.Context
	running sync.WaitGroup
	retry   chan struct{} // has a value if that is to be done at once
	mu      sync.Mutex
	active  bool
	trying  sync.Mutex // held during a try
}

const (
	recoveryTimeout  = 5 * time.Second // of trying to open objects of one resource
	firstRecovery    = 100 * time.Millisecond
	recoveryInterval = 10 * time.Second
)

// startRecovery tries to open the unreadable objects until there are none.
func (f *Feed) startRecovery() {
	r := &f.recovery
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active || r.ctx.Err() != nil {
		return
	}
	r.active = true
	r.running.Go(func() {
		for wait := firstRecovery; ; wait = min(2*wait, recoveryInterval) {
			select {
			case <-time.After(wait):
			case <-r.retry:
			case <-r.ctx.Done():
				return
			}
			f.recoverUnreadable(r.ctx)
			r.mu.Lock()
			if len(f.unreadableCaches()) == 0 {
				r.active = false
				r.mu.Unlock()
				return
			}
			r.mu.Unlock()
		}
	})
}

// RetryUnreadable tries to open the unreadable objects soon: more of them may be readable now.
func (f *Feed) RetryUnreadable() {
	select {
	case f.recovery.retry <- struct{}{}:
	default:
	}
}

// Unreadable tries to open the unreadable objects, and returns an error for each resource that still has some.
func (f *Feed) Unreadable(ctx context.Context) (errs []error) {
	if len(f.unreadableCaches()) > 0 {
		f.recoverUnreadable(ctx)
	}
	for _, c := range f.unreadableCaches() {
		s := c.Snapshot()
		if err := s.Unreadable(""); err != nil {
			errs = append(errs, fmt.Errorf("%d of the %s cannot be read: %w", len(s.unreadable), c.Kind.Name, err))
		}
	}
	return errs
}

// unreadableCaches returns the caches that lack unreadable objects.
func (f *Feed) unreadableCaches() (lacking []*Cache) {
	for _, c := range *f.caches.Load() {
		c.mu.RLock()
		if len(c.unreadable) > 0 {
			lacking = append(lacking, c)
		}
		c.mu.RUnlock()
	}
	return lacking
}

// recoverUnreadable loads each resource again of whose unreadable objects one can be opened now.
func (f *Feed) recoverUnreadable(ctx context.Context) {
	f.recovery.trying.Lock()
	defer f.recovery.trying.Unlock()
	for _, c := range f.unreadableCaches() {
		if !f.opens(ctx, c) {
			continue
		}
		err := f.edit(ctx, func(ctx context.Context) {
			if err := f.fill(ctx, c); err != nil {
				f.log.Warn("failed to read objects that can be decrypted now; trying again", "resource", c.Kind.Name, "err", err)
			}
		})
		if err == nil && len(c.Snapshot().unreadable) == 0 {
			f.log.Info("all objects of a resource can be decrypted again", "resource", c.Kind.Name)
		}
	}
}

// opens reports whether one of the unreadable objects of a cache can be opened, or is gone.
func (f *Feed) opens(ctx context.Context, c *Cache) bool {
	ctx, cancel := context.WithTimeout(ctx, recoveryTimeout)
	defer cancel()
	for _, o := range c.Snapshot().unreadable {
		kv, _, err := f.store.Get(ctx, o.key)
		if errors.Is(err, store.ErrNotFound) {
			return true
		}
		if err == nil {
			_, err = c.Kind.parse(ctx, o.key[len(c.Kind.Prefix):], kv.Value, kv.Revision)
		}
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
	}
	return false
}
