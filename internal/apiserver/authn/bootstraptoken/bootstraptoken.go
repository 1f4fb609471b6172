package bootstraptoken

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/objects"
)

// The type, the name prefix and the data keys of the Secrets.
const (
	SecretType   = corev1.SecretTypeBootstrapToken
	SecretPrefix = "bootstrap-token-"

	KeyID             = "token-id"
	KeySecret         = "token-secret"
	KeyExpiration     = "expiration"
	KeyAuthentication = "usage-bootstrap-authentication"
	KeyExtraGroups    = "auth-extra-groups"
)

const (
	userPrefix   = "system:bootstrap:"
	defaultGroup = "system:bootstrappers"

	idLength, secretLength = 6, 16
)

var groupPattern = regexp.MustCompile(`\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z`)

// Authenticator authenticates bootstrap tokens.
type Authenticator struct {
	objects objects.Reader
	clock   clock.PassiveClock
	log     *slog.Logger
}

// New returns an authenticator that reads the Secrets from objects.
func New(objects objects.Reader, now clock.PassiveClock, log *slog.Logger) *Authenticator {
	return &Authenticator{objects, now, log}
}

// Authenticate returns the token's user. It reads only the cache: otherwise any text of the right form would cost a read of the store.
func (a *Authenticator) Authenticate(_ context.Context, token string) (*authn.User, error) {
	id, secretPart, ok := parse(token)
	if !ok {
		return nil, nil
	}
	secret, _ := a.objects.Get(corev1.Resource("secrets"), metav1.NamespaceSystem, SecretPrefix+id).(*corev1.Secret)
	if secret == nil {
		return nil, nil
	}
	groups, problem := a.check(secret, id, secretPart)
	if problem != "" {
		a.log.Debug("bootstrap token refused", "secret", secret.Name, "reason", problem)
		return nil, nil
	}
	return &authn.User{Username: userPrefix + id, Groups: groups}, nil
}

func parse(token string) (id, secret string, ok bool) {
	id, secret, ok = strings.Cut(token, ".")
	return id, secret, ok && wellFormed(id, idLength) && wellFormed(secret, secretLength)
}

func wellFormed(s string, length int) bool {
	if len(s) != length {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// check returns the groups of the token's user, or why the token is invalid.
func (a *Authenticator) check(secret *corev1.Secret, id, secretPart string) (groups []string, problem string) {
	switch {
	case secret.DeletionTimestamp != nil:
		return nil, "the Secret is being deleted"
	case secret.Type != SecretType:
		return nil, "the Secret is of another type"
	case subtle.ConstantTimeCompare(secret.Data[KeySecret], []byte(secretPart)) != 1:
		return nil, "the token's secret part is wrong"
	case string(secret.Data[KeyID]) != id:
		return nil, "the Secret holds another ID"
	case a.expired(string(secret.Data[KeyExpiration])):
		return nil, "the token has expired"
	case string(secret.Data[KeyAuthentication]) != "true":
		return nil, "the token is not for authentication"
	}
	groups = []string{defaultGroup}
	if extra := string(secret.Data[KeyExtraGroups]); extra != "" {
		groups = append(groups, strings.Split(extra, ",")...)
	}
	for _, g := range groups[1:] {
		if !groupPattern.MatchString(g) {
			return nil, "the Secret names a group that is not for bootstrapping"
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), ""
}

// expired reports whether the expiration has passed; one that cannot be parsed counts as passed.
func (a *Authenticator) expired(expiration string) bool {
	if expiration == "" {
		return false
	}
	at, err := time.Parse(time.RFC3339, expiration)
	return err != nil || !at.After(a.clock.Now())
}
