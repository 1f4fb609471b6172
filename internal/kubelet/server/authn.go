package server

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	authenticated = "system:authenticated"
	// credentialID is the key in a user's extra of the certificate, for audit logs.
	credentialID = "authentication.kubernetes.io/credential-id"
	// tokenTTL is how long the result of a TokenReview is cached, as upstream.
	tokenTTL  = 2 * time.Minute
	maxTokens = 1000
)

// How many TokenReviews of unknown tokens are made: for one source, and in total. Known tokens do not count.
var (
	unknownTokensPerSource = rate{perSecond: 5, burst: 20}
	unknownTokensTotal     = rate{perSecond: 50, burst: 200}
)

// authenticator authenticates clients.
type authenticator struct {
	api       kubernetes.Interface
	clientCAs func() *x509.CertPool
	anonymous bool
	tokens    *reviewCache[[sha256.Size]byte, *authenticationv1.UserInfo]
}

func newAuthenticator(o *Options) *authenticator {
	return &authenticator{api: o.API, clientCAs: o.ClientCAs, anonymous: o.Anonymous,
		tokens: newReviewCache[[sha256.Size]byte](maxTokens, newLimiter(unknownTokensPerSource, unknownTokensTotal), func(u *authenticationv1.UserInfo) bool { return u != nil })}
}

var errNoCredentials = errors.New("no credentials")

// authenticate returns the user of a certificate, or else of a bearer token. A client without credentials is anonymous, if that is allowed; one with invalid
// credentials is rejected even then.
func (a *authenticator) authenticate(rq *http.Request) (*authenticationv1.UserInfo, error) {
	user, certErr := a.certificate(rq)
	if certErr == nil {
		return user, nil
	}
	user, tokenErr := a.token(rq)
	if tokenErr == nil {
		return user, nil
	}
	if a.anonymous && errors.Is(certErr, errNoCredentials) && errors.Is(tokenErr, errNoCredentials) {
		return &authenticationv1.UserInfo{Username: "system:anonymous", Groups: []string{"system:unauthenticated"}}, nil
	}
	return nil, errors.Join(certErr, tokenErr)
}

func (a *authenticator) certificate(rq *http.Request) (*authenticationv1.UserInfo, error) {
	if rq.TLS == nil || len(rq.TLS.PeerCertificates) == 0 {
		return nil, fmt.Errorf("certificate: %w", errNoCredentials)
	}
	c := rq.TLS.PeerCertificates[0]
	between := x509.NewCertPool()
	for _, other := range rq.TLS.PeerCertificates[1:] {
		between.AddCert(other)
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: a.clientCAs(), Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return nil, fmt.Errorf("the certificate of %q: %w", c.Subject.CommonName, err)
	}
	if c.Subject.CommonName == "" {
		return nil, errors.New("the certificate has no common name")
	}
	sum := sha256.Sum256(c.Raw)
	return &authenticationv1.UserInfo{Username: c.Subject.CommonName, Groups: append(c.Subject.Organization[:len(c.Subject.Organization):len(c.Subject.Organization)], authenticated),
		Extra: map[string]authenticationv1.ExtraValue{credentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}}}, nil
}

// token returns the user of a bearer token, by a TokenReview.
func (a *authenticator) token(rq *http.Request) (*authenticationv1.UserInfo, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(rq.Header.Get("Authorization")), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "bearer") || token == "" {
		return nil, fmt.Errorf("token: %w", errNoCredentials)
	}
	user, err := a.tokens.get(rq.Context(), sha256.Sum256([]byte(token)), sourceOf(rq), func(ctx context.Context) (*authenticationv1.UserInfo, time.Duration, error) {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		review, err := a.api.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
		switch {
		case err != nil:
			return nil, 0, fmt.Errorf("failed to review a token: %w", err)
		case !review.Status.Authenticated:
			return nil, tokenTTL, nil
		}
		return &review.Status.User, tokenTTL, nil
	})
	if err == nil && user == nil {
		err = errors.New("the API does not know the token")
	}
	return user, err
}
