package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// allowedTTL and deniedTTL are how long the result of a SubjectAccessReview is cached, as upstream.
	allowedTTL = 5 * time.Minute
	deniedTTL  = 30 * time.Second
	maxReviews = 1000
	// maxReviewKey is the longest key of a review that is cached.
	maxReviewKey = 10000
)

// How many SubjectAccessReviews that are denied are made: for one user, and in total.
var (
	deniedReviewsPerUser = rate{perSecond: 5, burst: 100}
	deniedReviewsTotal   = rate{perSecond: 100, burst: 500}
)

// authorizer authorizes clients by SubjectAccessReviews.
type authorizer struct {
	api         kubernetes.Interface
	node        string
	alwaysAllow bool
	reviews     *reviewCache[string, bool]
	log         *slog.Logger
}

func newAuthorizer(o *Options) *authorizer {
	return &authorizer{api: o.API, node: o.NodeName, alwaysAllow: o.AlwaysAllow, log: o.Log,
		reviews: newReviewCache[string](maxReviews, newLimiter(deniedReviewsPerUser, deniedReviewsTotal), func(allowed bool) bool { return allowed })}
}

// check returns the status code and message that a request is rejected with, zero if it is allowed.
func (a *authorizer) check(rq *http.Request, user *authenticationv1.UserInfo) (code int, message string) {
	if a.alwaysAllow {
		return 0, ""
	}
	verb, parts := verbOf(rq), subresources(rq.URL.Path)
	for _, part := range parts {
		allowed, err := a.allowed(rq.Context(), user, verb, part)
		if errors.Is(err, errTooManyReviews) {
			return http.StatusTooManyRequests, "too many requests"
		}
		if err != nil {
			a.log.Warn("failed to authorize a client of the kubelet", "user", user.Username, "verb", verb, "subresource", part, "error", err)
			return http.StatusInternalServerError, fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", user.Username, verb, part)
		}
		if allowed {
			return 0, ""
		}
	}
	return http.StatusForbidden, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n", user.Username, verb, parts)
}

func (a *authorizer) allowed(ctx context.Context, user *authenticationv1.UserInfo, verb, part string) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: user.Username, UID: user.UID, Groups: user.Groups,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Version: "v1", Resource: "nodes", Subresource: part, Name: a.node}}
	if len(user.Extra) > 0 {
		spec.Extra = make(map[string]authorizationv1.ExtraValue, len(user.Extra))
		for k, v := range user.Extra {
			spec.Extra[k] = authorizationv1.ExtraValue(v)
		}
	}
	key, err := json.Marshal(&spec)
	if err != nil {
		return false, err
	}
	return a.reviews.get(ctx, string(key), user.Username, func(ctx context.Context) (bool, time.Duration, error) {
		review, err := a.api.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		switch {
		case err != nil:
			return false, 0, err
		case len(key) > maxReviewKey:
			return review.Status.Allowed, 0, nil
		case review.Status.Allowed:
			return true, allowedTTL, nil
		}
		return false, deniedTTL, nil
	})
}

// verbOf returns the verb of a request for authorization. What runs in a container or reaches its ports takes create, whatever the method: a
// WebSocket begins with GET, and with that verb the right to read from the proxy would be the right to run commands. Upstream goes by the method.
func verbOf(rq *http.Request) string {
	for _, root := range []string{"/exec", "/attach", "/portForward", "/run"} {
		if isBeneath(path.Clean(rq.URL.Path), root) {
			return "create"
		}
	}
	switch rq.Method {
	case http.MethodGet:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

// subresources returns the subresources of the node one of which a client must be allowed for a path. Paths without a subresource of their own need
// nodes/proxy, which allows nearly all.
func subresources(at string) []string {
	for _, s := range []struct {
		root         string
		subresources []string
	}{
		{"/stats", []string{"stats"}},
		{"/metrics", []string{"metrics"}},
		{"/logs", []string{"log"}},
		{"/checkpoint", []string{"checkpoint"}},
		{"/statusz", []string{"statusz"}},
		{"/flagz", []string{"configz"}},
		{"/pods", []string{"pods", "proxy"}},
		{"/runningpods", []string{"pods", "proxy"}},
		{"/healthz", []string{"healthz", "proxy"}},
		{"/configz", []string{"configz", "proxy"}},
	} {
		if isBeneath(at, s.root) {
			return s.subresources
		}
	}
	return []string{"proxy"}
}

func isBeneath(at, root string) bool {
	rest, ok := strings.CutPrefix(at, root)
	return ok && (rest == "" || rest[0] == '/')
}
