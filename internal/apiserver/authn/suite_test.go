package authn_test

import (
	"log/slog"
	"net/http"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/authn/authntest"
)

// TestSuite runs the suite of authntest on every authenticator.
func TestSuite(t *testing.T) {
	for name, newSubject := range map[string]func(*testing.T) *authntest.Subject{
		"client certificate":                        clientCert,
		"client certificate of an intermediate CA":  intermediateCert,
		"request header":                            requestHeader,
		"password file":                             passwordFile,
		"token file":                                tokenFile,
		"service account token":                     accountToken,
		"service account token bound to a Pod":      podToken,
		"service account token bound to a Secret":   secretToken,
		"service account token bound to a Node":     nodeToken,
		"service account token in a Secret, legacy": legacyToken,
		"bootstrap token":                           bootstrapToken,
		"ID token":                                  idToken,
		"ID token, mapped by expressions":           mappedIDToken,
		"ID token with distributed groups":          distributedIDToken,
		"token that a webhook reviews":              reviewedToken,
		"token that a webhook reviews, v1beta1":     reviewedTokenBeta,
	} {
		t.Run(name, func(t *testing.T) { authntest.Run(t, newSubject) })
	}
}

var (
	start = time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	quiet = slog.New(slog.DiscardHandler)
)

func newClock() *clocktesting.FakePassiveClock { return clocktesting.NewFakePassiveClock(start) }

func bare() *http.Request {
	r := authntest.WithToken("")
	r.Header.Del("Authorization")
	return r
}
