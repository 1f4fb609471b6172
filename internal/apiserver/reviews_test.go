package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/response"
)

const (
	authorizationPath  = "/apis/authorization.k8s.io/v1/"
	authenticationPath = "/apis/authentication.k8s.io/v1/"
)

// onlyGet lets everybody read, and remembers what it was asked.
type onlyGet struct{ asked *authz.Attributes }

func (o *onlyGet) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	switch {
	case a.User.Username == "kubernetes-admin" && a.Verb == "create":
		return authz.Allow, "", nil
	case a.Verb == "get":
		o.asked = a
		return authz.Allow, "everybody may read", nil
	case a.Verb == "delete":
		return authz.Deny, "nobody may delete", nil
	}
	return authz.NoOpinion, "", errors.New("no idea")
}

func reviewed[T any](s *testServer, path, body string) T {
	s.t.Helper()
	var out T
	w := s.do("POST", path, body)
	if w.Code != 201 {
		s.t.Errorf("%s %s: %d %s", path, body, w.Code, w.Body)
	} else if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		s.t.Error(err)
	}
	return out
}

func TestAccessReviews(t *testing.T) {
	authorizer := &onlyGet{}
	s := newTestServer(t, func(o *Options) { o.Authorizer = authorizer })
	ask := func(verb, more string) authorizationv1.SubjectAccessReviewStatus {
		t.Helper()
		return reviewed[authorizationv1.SubjectAccessReview](s, authorizationPath+"subjectaccessreviews",
			`{"spec":{"user":"u","groups":["g"],"extra":{"k":["v"]},"resourceAttributes":{"verb":"`+verb+`","group":"apps","resource":"deployments","subresource":"scale","namespace":"ns","name":"n"`+more+`}}}`).Status
	}
	if got := ask("get", ""); !got.Allowed || got.Denied || got.Reason != "everybody may read" || got.EvaluationError != "" {
		t.Errorf("get: %v", got)
	}
	a := authorizer.asked
	if a.User.Username != "u" || a.User.Groups[0] != "g" || a.User.Extra["k"][0] != "v" || !a.Resource || a.Group != "apps" || a.Version != "*" || a.Plural != "deployments" ||
		a.Subresource != "scale" || a.Namespace != "ns" || a.Name != "n" {
		t.Errorf("the authorizer was asked %v", a)
	}
	if got := ask("delete", ""); got.Allowed || !got.Denied || got.Reason != "nobody may delete" {
		t.Errorf("delete: %v", got)
	}
	if got := ask("list", ""); got.Allowed || got.Denied || got.EvaluationError != "no idea" {
		t.Errorf("list: %v", got)
	}
	got := ask("get", `,"labelSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]},{"key":"c","operator":"Resembles","values":["d"]}]},"fieldSelector":{"requirements":[{"key":"x","operator":"In","values":["a","b"]}]}`)
	if want := "spec.resourceAttributes.fieldSelector ignored due to parse error; spec.resourceAttributes.labelSelector partially ignored due to parse error"; got.EvaluationError != want || !got.Allowed {
		t.Errorf("selectors: %v", got)
	}
	if authorizer.asked.LabelSelector != "a in (b)" || authorizer.asked.FieldSelector != "" {
		t.Errorf("selectors are %q and %q", authorizer.asked.LabelSelector, authorizer.asked.FieldSelector)
	}
	ask("get", `,"labelSelector":{"rawSelector":"a=b,c"},"fieldSelector":{"rawSelector":"x!=y"}`)
	if authorizer.asked.LabelSelector != "a=b,c" || authorizer.asked.FieldSelector != "x!=y" {
		t.Errorf("selectors are %q and %q", authorizer.asked.LabelSelector, authorizer.asked.FieldSelector)
	}
	if own := reviewed[authorizationv1.SelfSubjectAccessReview](s, authorizationPath+"selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"verb":"get","path":"/x"}}}`); !own.Status.Allowed {
		t.Errorf("own: %v", own.Status)
	}
	if a := authorizer.asked; a.User.Username != "kubernetes-admin" || a.Resource || a.Path != "/x" {
		t.Errorf("the authorizer was asked %v", a)
	}
	local := reviewed[authorizationv1.LocalSubjectAccessReview](s, authorizationPath+"namespaces/none/localsubjectaccessreviews",
		`{"spec":{"user":"u","resourceAttributes":{"verb":"get","resource":"pods","namespace":"none"}}}`)
	if !local.Status.Allowed || local.Namespace != "none" {
		t.Errorf("local: %v", local)
	}
}

func TestReviewRefusals(t *testing.T) {
	s := newTestServer(t)
	// Codes and texts are those of kube-apiserver v1.37.1.
	s.expect(422, `.authorization.k8s.io "" is invalid: [spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: "": at least one of user or group must be specified]`,
		"POST", authorizationPath+"subjectaccessreviews", `{}`)
	s.expect(422, `.authorization.k8s.io "" is invalid: spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified`,
		"POST", authorizationPath+"selfsubjectaccessreviews", `{}`)
	s.expect(422, `.authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "": must match metadata.namespace`,
		"POST", authorizationPath+"namespaces/default/localsubjectaccessreviews", `{"spec":{"user":"u","resourceAttributes":{"verb":"get","resource":"pods"}}}`)
	s.expect(400, "the namespace of the provided object does not match the namespace sent on the request",
		"POST", authorizationPath+"namespaces/default/localsubjectaccessreviews", `{"metadata":{"namespace":"x"},"spec":{"user":"u"}}`)
	s.expect(400, "no namespace on request", "POST", authorizationPath+"selfsubjectrulesreviews", `{}`)
	s.expect(400, "token is required for TokenReview in authentication", "POST", authenticationPath+"tokenreviews", `{}`)
	s.expect(405, response.ErrMethodNotAllowed.ErrStatus.Message, "GET", authorizationPath+"subjectaccessreviews", "")
	s.expect(404, response.ErrNotFound.ErrStatus.Message, "GET", authorizationPath+"subjectaccessreviews/x", "")
	if w := s.do("POST", authorizationPath+"selfsubjectaccessreviews", `{}`, "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"); w.Code != 406 {
		t.Errorf("a review as a table: %d", w.Code)
	}
}

func TestRulesReviews(t *testing.T) {
	for _, c := range []struct {
		name       string
		authorizer authz.Authorizer
		want       string
	}{
		{"all", authz.AlwaysAllow{}, `"status":{"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}],"incomplete":false}`},
		{"unknown", &onlyGet{}, `"status":{"resourceRules":[],"nonResourceRules":[],"incomplete":true,"evaluationError":"the authorizer does not support user rule resolution"}`},
		{"chain", authz.Chain{&onlyGet{}, listed{}}, `"status":{"resourceRules":[{"verbs":["get"],"resources":["pods"]}],"nonResourceRules":[],"incomplete":true,"evaluationError":"the authorizer does not support user rule resolution"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTestServer(t, func(o *Options) { o.Authorizer = c.authorizer })
			if got := s.must("POST", authorizationPath+"selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`); !strings.Contains(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// listed is an authorizer that can list rules.
type listed struct{ authz.AlwaysAllow }

func (listed) RulesFor(context.Context, *authn.User, string) (authz.Rules, error) {
	return authz.Rules{Resources: []authorizationv1.ResourceRule{{Verbs: []string{"get"}, Resources: []string{"pods"}}}}, nil
}

func TestAuthenticationReviews(t *testing.T) {
	s := newTestServer(t)
	self := reviewed[authenticationv1.SelfSubjectReview](s, authenticationPath+"selfsubjectreviews", `{"metadata":{"name":"x"}}`)
	if self.Status.UserInfo.Username != "kubernetes-admin" || self.Name != "" || self.CreationTimestamp.IsZero() {
		t.Errorf("self: %v", self)
	}
	good := reviewed[authenticationv1.TokenReview](s, authenticationPath+"tokenreviews", `{"spec":{"token":"`+testToken+`"}}`)
	if !good.Status.Authenticated || good.Status.User.Username != "kubernetes-admin" {
		t.Errorf("good token: %v", good.Status)
	}
	bad := reviewed[authenticationv1.TokenReview](s, authenticationPath+"tokenreviews", `{"spec":{"token":"zz"}}`)
	if bad.Status.Authenticated || bad.Status.User.Username != "" || bad.Status.Error == "" {
		t.Errorf("bad token: %v", bad.Status)
	}
}

// A component of this process that asks about a token must not be told that the token is its own.
func TestTokenReviewsOfComponents(t *testing.T) {
	s := newTestServer(t)
	r := httptest.NewRequest("POST", authenticationPath+"tokenreviews", strings.NewReader(`{"spec":{"token":"zz"}}`))
	r = r.WithContext(authn.InProcess(r.Context(), authn.Admin()))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	var got authenticationv1.TokenReview
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 201 || got.Status.Authenticated {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
