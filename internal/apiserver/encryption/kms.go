package encryption

import (
	"context"
	"crypto/aes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	kmsapi "k8s.io/kms/apis/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	probeEvery        = time.Minute      // how often a plugin that is well is asked for its state
	probeFailedEvery  = 10 * time.Second // the same for one that is not
	seedLife          = 3 * time.Minute  // how long values are encrypted with a seed after the plugin was last known to be well
	healthyAnswerLife = 20 * time.Second // for how long the result of a probe stands
	failedAnswerLife  = 3 * time.Second
	maxSources        = 1000 // seeds and keys that were decrypted by the plugin and are kept
)

// kms encrypts with keys that are derived from a seed, and stores the seed beside each value, encrypted by a plugin. The plugin is asked to encrypt a seed when the
// server starts and when its key has changed, and to decrypt a seed when a value of it is read for the first time. So values can be read and written
// while the plugin is away: read without limit, written for seedLife.
type kms struct {
	name    string
	plugin  *plugin
	clock   clock.PassiveClock
	metrics *metrics
	log     *slog.Logger

	current atomic.Pointer[seedState] // nil until the plugin has encrypted the first seed
	opened  *lru.Cache                // provider by sha256 of the encrypted source

	probing chan struct{} // holds a value while the plugin is probed; guards the following
	version string        // of the API, as the plugin has first said
	last    probeResult
}

// seedState is the seed that values are encrypted with.
type seedState struct {
	seeded
	source
	fields  []byte // the encoded source
	sum     [sha256.Size]byte
	expires time.Time
}

type probeResult struct {
	at   time.Time
	life time.Duration
	err  error
}

func newKMS(name string, p *plugin, c clock.PassiveClock, m *metrics, log *slog.Logger) *kms {
	return &kms{name: name, plugin: p, clock: c, metrics: m, log: log, opened: lru.New(maxSources), probing: make(chan struct{}, 1)}
}

// run probes the plugin until ctx ends.
func (k *kms) run(ctx context.Context, c clock.Clock) {
	defer k.plugin.close()
	wait := probeEvery
	if k.current.Load() == nil {
		wait = probeFailedEvery
	}
	for {
		t := c.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C():
		}
		if wait = probeEvery; k.check(ctx) != nil {
			wait = probeFailedEvery
		}
	}
}

// check returns why the plugin cannot be used, or nil. It probes the plugin unless that was done a moment ago.
func (k *kms) check(ctx context.Context) error {
	select {
	case k.probing <- struct{}{}:
		defer func() { <-k.probing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if k.clock.Since(k.last.at) < k.last.life {
		return k.last.err
	}
	err := k.probe(ctx)
	k.last = probeResult{k.clock.Now(), healthyAnswerLife, err}
	if err != nil {
		k.last.life = failedAnswerLife
		k.log.Warn("KMS plugin failed its health check", "name", k.name, "err", err)
	}
	return err
}

func (k *kms) probe(ctx context.Context) error {
	status, err := k.plugin.status(ctx)
	if err != nil {
		return fmt.Errorf("failed to perform status section of the healthz check for KMS Provider %s, error: %w", k.name, err)
	}
	errs := k.statusProblems(status)
	if code, err := checkKeyID(status.KeyId); err != nil {
		k.metrics.invalidKeyID.WithLabelValues(k.name, code).Inc()
		errs = append(errs, fmt.Errorf("got invalid KMSv2 KeyID hash %q: %w", hashOf(status.KeyId), err))
	} else {
		k.metrics.keyIDOfStatus(k.name, status.KeyId)
		if err := k.renew(ctx, status.KeyId); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("kmsv2 Provider %s is not healthy, error: %w", k.name, utilerrors.Reduce(utilerrors.NewAggregate(errs)))
	}
	return nil
}

// statusProblems returns what is wrong with a plugin's health and version.
func (k *kms) statusProblems(s *kmsapi.StatusResponse) (errs []error) {
	if s.Healthz != "ok" {
		errs = append(errs, fmt.Errorf("got unexpected healthz status: %s", shorten(s.Healthz)))
	}
	if s.Version != "v2" && s.Version != "v2beta1" {
		return append(errs, fmt.Errorf("expected KMSv2 API version v2, got %s", shorten(s.Version)))
	}
	if k.version == "" {
		k.version = s.Version
	}
	if k.version != s.Version {
		errs = append(errs, fmt.Errorf("KMSv2 API version should not change after the initial status response version %s, got %s", k.version, s.Version))
	}
	return errs
}

// shorten bounds what a plugin has answered, for errors.
func shorten(s string) string { return s[:min(len(s), 256)] }

// renew lets the current seed be used for longer if the plugin still has the key that encrypted it, and makes another seed if not. If that fails the current seed
// stays, until it expires.
func (k *kms) renew(ctx context.Context, keyID string) error {
	expires := k.clock.Now().Add(seedLife) // counted from before the plugin is asked
	current := k.current.Load()
	if current != nil && current.keyID == keyID {
		longer := *current
		longer.expires = expires
		k.current.Store(&longer)
		return nil
	}
	uid := string(uuid.NewUUID())
	next, err := k.newSeed(ctx, uid, expires)
	if err == nil && next.keyID == keyID {
		k.opened.Add(next.sum, next.seeded)
		k.current.Store(next)
		k.metrics.sources(k.name, k.opened.Len())
		k.log.Info("KMS provider encrypts with a new seed", "name", k.name, "uid", uid, "keyIDHash", hashOf(keyID))
		return nil
	}
	var stateErr error
	was := &seedState{}
	if current == nil {
		stateErr = errNoSeed
	} else {
		was = current
	}
	if next == nil {
		next = &seedState{}
	}
	return fmt.Errorf("failed to rotate DEK uid=%q, useSeed=true, errState=%v, errGen=%w, statusKeyIDHash=%q, encryptKeyIDHash=%q, stateKeyIDHash=%q, expirationTimestamp=%s",
		uid, stateErr, orNone(err), hashOf(keyID), hashOf(next.keyID), hashOf(was.keyID), was.expires.Format(time.RFC3339))
}

// none is an error that says that there is none.
type none struct{}

func (none) Error() string { return "<nil>" }

func orNone(err error) error {
	if err == nil {
		return none{}
	}
	return err
}

var errNoSeed = errors.New("got unexpected nil transformer")

// newSeed makes a seed and has the plugin encrypt it.
func (k *kms) newSeed(ctx context.Context, uid string, expires time.Time) (*seedState, error) {
	began := time.Now()
	seed := make([]byte, seedSize)
	rand.Read(seed) // never fails
	k.metrics.generation.Observe(time.Since(began).Seconds())
	encrypted, err := k.plugin.encrypt(ctx, uid, seed)
	if err != nil {
		return nil, fmt.Errorf("failed to encrypt DEK, error: %w", err)
	}
	encrypted.seeded = true
	if err := encrypted.check(); err != nil {
		return nil, err
	}
	p, err := newSeeded(seed)
	if err != nil {
		return nil, err
	}
	return &seedState{seeded: p, source: encrypted, fields: encrypted.appendTo(nil), sum: encrypted.sum(), expires: expires}, nil
}

// sum identifies a source.
func (s *source) sum() [sha256.Size]byte {
	// Length-prefixed fields cannot be taken for others.
	return sha256.Sum256(s.appendTo(nil))
}

func (k *kms) overhead() int {
	if current := k.current.Load(); current != nil {
		return current.overhead() + len(current.fields) + 8
	}
	return 0
}

func (k *kms) seal(ctx context.Context, b []byte, key string, value []byte) ([]byte, error) {
	current := k.current.Load()
	if current == nil {
		return nil, unavailable{errNoSeed}
	}
	if now := k.clock.Now(); now.After(current.expires) {
		return nil, unavailable{fmt.Errorf("encryptedDEKSource with keyID hash %q expired at %s (current time is %s)",
			hashOf(current.keyID), current.expires.Format(time.RFC3339), now.Format(time.RFC3339))}
	}
	b = protowire.AppendTag(b, dataField, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(value)+current.overhead()))
	b, err := current.seal(ctx, b, key, value)
	if err != nil {
		return nil, err
	}
	k.metrics.keyIDUsed("to_storage", k.name, current.keyID)
	return append(b, current.fields...), nil
}

func (k *kms) open(ctx context.Context, key string, sealed []byte) ([]byte, bool, error) {
	o, err := parseObject(sealed)
	if err != nil {
		return nil, false, err
	}
	current := k.current.Load()
	if current == nil {
		return nil, false, unavailable{errNoSeed}
	}
	k.metrics.keyIDUsed("from_storage", k.name, o.keyID)
	stale := o.keyID != current.keyID || !o.seeded
	sum := o.sum()
	if known, ok := k.opened.Get(sum); ok {
		value, _, err := known.(provider).open(ctx, key, o.data)
		return value, stale, err
	}
	k.metrics.cacheMisses.Inc()
	p, err := k.opener(ctx, o.source)
	if err != nil {
		return nil, false, unavailable{err} // the plugin's answer may be another one later
	}
	value, _, err := p.open(ctx, key, o.data)
	if err == nil { // a wrong answer of the plugin is not kept
		k.opened.Add(sum, p)
		k.metrics.sources(k.name, k.opened.Len())
	}
	return value, stale, err
}

// opener has the plugin decrypt a source, and returns the provider of the key.
func (k *kms) opener(ctx context.Context, s source) (provider, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("failed to decrypt DEK, error: %w", err)
	}
	plain, err := k.plugin.decrypt(ctx, string(uuid.NewUUID()), s)
	if err != nil {
		return nil, fmt.Errorf("failed to decrypt DEK, error: %w", err)
	}
	if s.seeded {
		return newSeeded(plain)
	}
	block, err := aes.NewCipher(plain)
	if err != nil {
		return nil, err
	}
	return newGCM(block)
}

// hashOf returns the hash by which logs and metrics name a key; empty for none.
func hashOf(s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s)))
}
