package apiserver

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/catalog"
)

// Reviews are questions about identity and access. What is asked comes in the spec, the answer goes out in the status.

// review answers one kind of question.
type review func(rq *request, obj catalog.Object) (catalog.Object, error)

// reviews handles the questions of one resource.
func (s *Server) reviews(answer review) special {
	return func(rq *request) error {
		if err := rq.onlyCreate(); err != nil {
			return err
		}
		info := rq.end.info
		obj := info.New().(catalog.Object)
		opts, err := rq.receive(obj, info.GVK)
		if err != nil {
			return err
		}
		// Upstream's answers show who sent which field, although nothing is stored.
		manager, err := rq.end.manager("")
		if err != nil {
			return err
		}
		manager.Create(obj, rq.manager(opts.manager))
		if errs := info.Validate(obj); len(errs) > 0 {
			return apierrors.NewInvalid(schema.GroupKind{Group: info.GVK.Group}, "", errs)
		}
		if err := rq.validateReceived(obj, opts); err != nil {
			return err
		}
		if obj, err = answer(rq, obj); err != nil {
			return err
		}
		return rq.answerObject(http.StatusCreated, obj, info.GVK)
	}
}

// reviewSelf answers who the client is.
func (s *Server) reviewSelf(rq *request, _ catalog.Object) (catalog.Object, error) {
	return &authenticationv1.SelfSubjectReview{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now())},
		Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: *rq.user}}, nil
}

// reviewToken answers whose token it is. It says nothing of audiences, which the authenticators know nothing of: to the client that
// means that the token is good for this server.
func (s *Server) reviewToken(rq *request, obj catalog.Object) (catalog.Object, error) {
	r := obj.(*authenticationv1.TokenReview)
	if r.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	user, err := s.authenticateToken(rq.ctx, r.Spec.Token)
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: err == nil && user != nil}
	if err != nil {
		r.Status.Error = err.Error()
	} else if user != nil {
		r.Status.User = *user
	}
	return r, nil
}

// authenticateToken asks who a request would come from that carries nothing but the token. Its context must be a new one: the client's
// may say who the client is.
func (s *Server) authenticateToken(ctx context.Context, token string) (*authn.User, error) {
	bare, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	r, err := http.NewRequestWithContext(bare, http.MethodGet, "/", nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return s.opts.Authenticator.Authenticate(r)
}

// reviewAccess answers whether somebody may do something.
func (s *Server) reviewAccess(rq *request, obj catalog.Object) (catalog.Object, error) {
	r := obj.(*authorizationv1.SubjectAccessReview)
	r.Status = s.decide(rq.ctx, subject(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return r, nil
}

// reviewLocalAccess answers the same within a namespace.
func (s *Server) reviewLocalAccess(rq *request, obj catalog.Object) (catalog.Object, error) {
	r := obj.(*authorizationv1.LocalSubjectAccessReview)
	r.Status = s.decide(rq.ctx, subject(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return r, nil
}

// reviewOwnAccess answers whether the client may do something.
func (s *Server) reviewOwnAccess(rq *request, obj catalog.Object) (catalog.Object, error) {
	r := obj.(*authorizationv1.SelfSubjectAccessReview)
	r.Status = s.decide(rq.ctx, rq.user, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return r, nil
}

func subject(s *authorizationv1.SubjectAccessReviewSpec) *authn.User {
	user := &authn.User{Username: s.User, Groups: s.Groups, UID: s.UID}
	if len(s.Extra) > 0 {
		user.Extra = make(map[string]authenticationv1.ExtraValue, len(s.Extra))
		for key, value := range s.Extra {
			user.Extra[key] = authenticationv1.ExtraValue(value)
		}
	}
	return user
}

func (s *Server) decide(ctx context.Context, user *authn.User, resource *authorizationv1.ResourceAttributes, other *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	a := &authz.Attributes{User: user}
	var problems []string
	if resource != nil {
		a.Resource, a.Verb, a.Namespace, a.Group, a.Version = true, resource.Verb, resource.Namespace, resource.Group, resource.Version
		a.Plural, a.Subresource, a.Name = resource.Resource, resource.Subresource, resource.Name
		if a.Version == "" {
			a.Version = "*"
		}
		problems = readSelectors(a, resource)
	} else {
		a.Verb, a.Path = other.Verb, other.Path
	}
	decision, reason, err := s.opts.Authorizer.Authorize(ctx, a)
	if err != nil {
		problems = append([]string{err.Error()}, problems...)
	}
	return authorizationv1.SubjectAccessReviewStatus{Allowed: decision == authz.Allow, Denied: decision == authz.Deny, Reason: reason,
		EvaluationError: strings.Join(problems, "; ")}
}

// Rules are what somebody may do in a namespace. Incomplete means that there may be more.
type Rules struct {
	Resources  []authorizationv1.ResourceRule
	Others     []authorizationv1.NonResourceRule
	Incomplete bool
}

// RulesAuthorizer is an authorizer that can list what a user may do.
type RulesAuthorizer interface {
	RulesFor(ctx context.Context, user *authn.User, namespace string) (Rules, error)
}

// reviewOwnRules answers what the client may do in a namespace.
func (s *Server) reviewOwnRules(rq *request, obj catalog.Object) (catalog.Object, error) {
	namespace := obj.(*authorizationv1.SelfSubjectRulesReview).Spec.Namespace
	if namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	rules, err := rulesFor(rq.ctx, s.opts.Authorizer, rq.user, namespace)
	status := authorizationv1.SubjectRulesReviewStatus{ResourceRules: rules.Resources, NonResourceRules: rules.Others, Incomplete: rules.Incomplete}
	if status.ResourceRules == nil {
		status.ResourceRules = []authorizationv1.ResourceRule{}
	}
	if status.NonResourceRules == nil {
		status.NonResourceRules = []authorizationv1.NonResourceRule{}
	}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return &authorizationv1.SelfSubjectRulesReview{Status: status}, nil
}

// rulesFor asks an authorizer, or all members of a chain.
func rulesFor(ctx context.Context, a authz.Authorizer, user *authn.User, namespace string) (Rules, error) {
	switch a := a.(type) {
	case RulesAuthorizer:
		return a.RulesFor(ctx, user, namespace)
	case authz.AlwaysAllow:
		all := []string{"*"}
		return Rules{Resources: []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}},
			Others: []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}}}, nil
	case authz.Chain:
		var sum Rules
		var errs []error
		for _, member := range a {
			rules, err := rulesFor(ctx, member, user, namespace)
			errs = append(errs, err)
			sum.Resources, sum.Others = append(sum.Resources, rules.Resources...), append(sum.Others, rules.Others...)
			sum.Incomplete = sum.Incomplete || rules.Incomplete
		}
		return sum, errors.Join(errs...)
	}
	return Rules{Incomplete: true}, errors.New("the authorizer does not support user rule resolution")
}
