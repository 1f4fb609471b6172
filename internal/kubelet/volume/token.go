package volume

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

const (
	maxTokenAge = 24 * time.Hour   // after which a token is renewed, however long it is good for
	maxJitter   = 10 * time.Second // so that not all pods of a node ask at once
)

// tokens keeps the tokens of pods' service accounts and renews each when a fifth of its life is left, or after a day. It has one for each
// token that a volume of a pod shows, and forgets them with the pod.
type tokens struct {
	source Source
	clock  clock.PassiveClock
	log    *slog.Logger

	mu     sync.Mutex
	cached map[tokenKey]*authenticationv1.TokenRequest
}

type tokenKey struct {
	pod                                 types.UID
	namespace, serviceAccount, audience string
	seconds                             int64
}

// get returns a token that may be used for a while. When a new one cannot be had the old one is used as long as it is valid.
func (t *tokens) get(ctx context.Context, namespace, serviceAccount string, request *authenticationv1.TokenRequest) (string, error) {
	key := tokenKey{pod: request.Spec.BoundObjectRef.UID, namespace: namespace, serviceAccount: serviceAccount,
		audience: strings.Join(request.Spec.Audiences, ",")}
	if request.Spec.ExpirationSeconds != nil {
		key.seconds = *request.Spec.ExpirationSeconds
	}
	t.mu.Lock()
	old := t.cached[key]
	t.mu.Unlock()
	if old != nil && !t.stale(old) {
		return old.Status.Token, nil
	}
	fresh, err := t.source.Token(ctx, namespace, serviceAccount, request)
	switch {
	case err == nil:
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.cached == nil {
			t.cached = map[tokenKey]*authenticationv1.TokenRequest{}
		}
		t.cached[key] = fresh
		return fresh.Status.Token, nil
	case old == nil:
		return "", fmt.Errorf("failed to fetch token: %w", err)
	case t.clock.Now().After(old.Status.ExpirationTimestamp.Time):
		return "", fmt.Errorf("token of service account %s/%s expired and refresh failed: %w", namespace, serviceAccount, err)
	}
	t.log.Warn("a token was not renewed; the one before is still good", "serviceAccount", namespace+"/"+serviceAccount,
		"until", old.Status.ExpirationTimestamp.Time, "err", err)
	return old.Status.Token, nil
}

// stale reports whether it is time to renew a token. Its lifetime is in the spec of the response: the server may have changed it.
func (t *tokens) stale(token *authenticationv1.TokenRequest) bool {
	if token.Spec.ExpirationSeconds == nil {
		return false
	}
	life := time.Duration(*token.Spec.ExpirationSeconds) * time.Second
	end := token.Status.ExpirationTimestamp.Time
	jitter := rand.N(maxJitter)
	now := t.clock.Now()
	return now.After(end.Add(-life).Add(maxTokenAge-jitter)) || now.After(end.Add(-life/5-jitter))
}

func (t *tokens) forget(pod types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.cached {
		if key.pod == pod {
			delete(t.cached, key)
		}
	}
}
