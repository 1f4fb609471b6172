package eventratelimit

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"skiff/internal/apiserver/admission"
)

// Name is the plugin's name in flags and in configuration files.
const Name = "EventRateLimit"

// New returns the plugin.
func New(c Config, time clock.PassiveClock) admission.Plugin {
	p := &plugin{clock: time}
	for _, l := range c.limits {
		one := &limit{kind: l.Type, qps: rate.Limit(l.QPS), burst: int(l.Burst)}
		if l.Type == server {
			one.buckets = lru.New(1)
		} else {
			one.buckets = lru.New(l.cacheSize())
		}
		p.limits = append(p.limits, one)
	}
	return p
}

type plugin struct {
	clock  clock.PassiveClock
	limits []*limit
}

// limit is one kind of limit, with the token buckets of the keys that were used last.
type limit struct {
	kind  limitType
	qps   rate.Limit
	burst int

	mu      sync.Mutex
	buckets *lru.Cache
}

func (*plugin) Name() string { return Name }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Info.GVK.Group == "" && a.Info.GVK.Kind == "Event" && !a.DryRun && (a.Operation == admission.Create || a.Operation == admission.Update)
}

// Validate refuses an event if one of the limits is reached. It counts for the others all the same.
func (p *plugin) Validate(_ context.Context, a *admission.Attributes) error {
	var errs []error
	for _, l := range p.limits {
		key := l.key(a)
		if !l.bucket(key).AllowN(p.clock.Now(), 1) {
			errs = append(errs, fmt.Errorf("limit reached on type %v for key %v", l.kind, key))
		}
	}
	if len(errs) > 0 {
		return apierrors.NewTooManyRequestsError(utilerrors.NewAggregate(errs).Error())
	}
	return nil
}

// longestKey is the length of the longest key that a cache holds as it is: of longer ones it has a hash, so that its memory is bounded.
const longestKey = 512

// bucket returns the token bucket of a key, a full one if there is none.
func (l *limit) bucket(key string) *rate.Limiter {
	if len(key) > longestKey {
		sum := sha256.Sum256([]byte(key))
		key = string(sum[:])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.buckets.Get(key); ok {
		return known.(*rate.Limiter)
	}
	bucket := rate.NewLimiter(l.qps, l.burst)
	l.buckets.Add(key, bucket)
	return bucket
}

// key returns what the limit counts an event by.
func (l *limit) key(a *admission.Attributes) string {
	switch l.kind {
	case byNamespace:
		return a.Namespace
	case byUser:
		return a.User.Username
	case bySourceAndObject:
		if e, ok := a.Object.(*corev1.Event); ok {
			of := &e.InvolvedObject
			return strings.Join([]string{e.Source.Component, e.Source.Host, of.Kind, of.Namespace, of.Name, string(of.UID), of.APIVersion}, "")
		}
	}
	return ""
}
