package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/internal/apiserver/authn"
)

const (
	// requestTimeout bounds a request with its answer.
	requestTimeout = 30 * time.Second
	// maxBody bounds what is read of an answer.
	maxBody = 1 << 20
)

// DefaultRetry returns how often a request is tried, and how long to wait before the next try: upstream's values, for which it has no flags.
func DefaultRetry() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}
}

// Authenticator asks a server.
type Authenticator struct {
	client    *rest.RESTClient
	version   schema.GroupVersion
	audiences []string // of this API server
	retry     wait.Backoff
}

// New returns an authenticator that asks the server of the kubeconfig, with TokenReviews of the version v1 or v1beta1. A token that the
// server gives no audiences for is valid for serverAudiences.
func New(kubeconfig, version string, serverAudiences []string, retry wait.Backoff) (*Authenticator, error) {
	gv := schema.GroupVersion{Group: authenticationv1.GroupName, Version: version}
	if gv != authenticationv1.SchemeGroupVersion && gv != authenticationv1beta1.SchemeGroupVersion {
		return nil, fmt.Errorf("unsupported authentication webhook version %q, supported versions are %q, %q", version,
			authenticationv1.SchemeGroupVersion.Version, authenticationv1beta1.SchemeGroupVersion.Version)
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.Timeout, config.QPS = requestTimeout, -1
	config.ContentType = runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: scheme.Codecs.LegacyCodec(gv)})
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &Authenticator{client, gv, serverAudiences, retry}, nil
}

// AuthenticateToken asks the server about the token.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string, audiences []string) (*authn.User, []string, error) {
	if len(audiences) == 0 {
		audiences = a.audiences
	}
	status, err := a.review(ctx, authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences})
	if err != nil {
		return nil, nil, err
	}
	var valid []string
	if len(audiences) > 0 {
		given := a.audiences
		if len(status.Audiences) > 0 {
			given = status.Audiences
		}
		if valid = authn.Common(audiences, given); len(valid) == 0 {
			return nil, nil, nil
		}
	}
	switch {
	case status.Authenticated:
		return &status.User, valid, nil
	case status.Error != "":
		return nil, nil, errors.New(status.Error)
	}
	return nil, nil, nil
}

// review asks until there is an answer, an error that will not pass, or no try left.
func (a *Authenticator) review(ctx context.Context, spec authenticationv1.TokenReviewSpec) (status authenticationv1.TokenReviewStatus, err error) {
	var lastErr error
	waitErr := wait.ExponentialBackoffWithContext(ctx, a.retry, func(ctx context.Context) (bool, error) {
		status, lastErr = a.post(ctx, spec)
		if passes(lastErr) {
			return false, nil
		}
		return lastErr == nil, lastErr
	})
	switch {
	case lastErr != nil:
		return status, lastErr
	case waitErr != nil:
		return status, fmt.Errorf("webhook call failed: %w", waitErr)
	}
	return status, nil
}

// passes reports whether the error is likely to pass soon.
func passes(err error) bool {
	if err == nil {
		return false
	}
	_, delay := apierrors.SuggestsClientDelay(err)
	return delay || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

func (a *Authenticator) post(ctx context.Context, spec authenticationv1.TokenReviewSpec) (authenticationv1.TokenReviewStatus, error) {
	if a.version == authenticationv1.SchemeGroupVersion {
		var answer authenticationv1.TokenReview
		err := a.client.Post().Body(&authenticationv1.TokenReview{Spec: spec}).Do(ctx).Into(&answer)
		return answer.Status, err
	}
	var answer authenticationv1beta1.TokenReview
	err := a.client.Post().Body(&authenticationv1beta1.TokenReview{Spec: authenticationv1beta1.TokenReviewSpec(spec)}).Do(ctx).Into(&answer)
	status := authenticationv1.TokenReviewStatus{Authenticated: answer.Status.Authenticated, Audiences: answer.Status.Audiences, Error: answer.Status.Error}
	user := &answer.Status.User
	status.User = authn.User{Username: user.Username, UID: user.UID, Groups: user.Groups}
	if user.Extra != nil {
		status.User.Extra = make(map[string]authenticationv1.ExtraValue, len(user.Extra))
		for key, values := range user.Extra {
			status.User.Extra[key] = authenticationv1.ExtraValue(values)
		}
	}
	return status, err
}

// bounded bounds the bodies of answers.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &body{answer.Body, maxBody}
	}
	return answer, err
}

type body struct {
	io.ReadCloser
	left int
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if n > b.left {
		return b.left, fmt.Errorf("the answer is larger than %d bytes", maxBody)
	}
	b.left -= n
	return n, err
}
