package bootstrap

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	secretPrefix  = "bootstrap-token-"
	idKey         = "token-id"
	secretKey     = "token-secret"
	expirationKey = "expiration"
	signingKey    = "usage-bootstrap-signing"
)

var (
	idForm     = regexp.MustCompile(`^[a-z0-9]{6}$`)
	secretForm = regexp.MustCompile(`^[a-z0-9]{16}$`)
)

// isToken reports whether a Secret is a bootstrap token.
func isToken(secret *corev1.Secret) bool {
	return secret.Namespace == metav1.NamespaceSystem && secret.Type == corev1.SecretTypeBootstrapToken
}

// expiration returns when a token expires; false if never. A time that cannot be parsed counts as passed.
func expiration(secret *corev1.Secret) (time.Time, bool) {
	text := string(secret.Data[expirationKey])
	if text == "" {
		return time.Time{}, false
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, true
	}
	return at, true
}

// signingToken returns the id and secret of a token that is for signing and has not expired.
func signingToken(secret *corev1.Secret, now time.Time) (id, key string, ok bool) {
	id, key = string(secret.Data[idKey]), string(secret.Data[secretKey])
	at, limited := expiration(secret)
	switch {
	case !isToken(secret), secret.Name != secretPrefix+id, !idForm.MatchString(id), !secretForm.MatchString(key):
		return "", "", false
	case limited && !at.After(now), string(secret.Data[signingKey]) != "true":
		return "", "", false
	}
	return id, key, true
}

// signature returns a detached JSON web signature (HS256) of a text.
func signature(text, id, key string) string {
	header, _ := json.Marshal(struct { // it cannot fail
		Algorithm string `json:"alg"`
		Key       string `json:"kid"`
	}{"HS256", id})
	head := base64.RawURLEncoding.EncodeToString(header)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(head + "." + base64.RawURLEncoding.EncodeToString([]byte(text))))
	return head + ".." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
