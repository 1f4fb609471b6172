package subresources

import (
	"context"
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
	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
)

// Reviews are objects that are created to ask about identity or access: the spec has the question, the status the answer. They are not stored.

// review returns a review with its status.
type review func(rq *verbs.Request, obj catalog.Object) (catalog.Object, error)

// reviews serves one resource of reviews.
func (h *handlers) reviews(answer review) verbs.Handler {
	return func(rq *verbs.Request) error {
		if err := requireCreate(rq); err != nil {
			return err
		}
		info := rq.Endpoint.Info
		obj := info.New().(catalog.Object)
		opts, err := decodeAndAdmit(rq, obj, info.GVK)
		if err != nil {
			return err
		}
		// As upstream, whose answers have managedFields although nothing is stored.
		manager, err := rq.Endpoint.Manager("")
		if err != nil {
			return err
		}
		manager.Create(obj, rq.FieldManager(opts.Manager))
		if errs := info.Validate(obj); len(errs) > 0 {
			return apierrors.NewInvalid(schema.GroupKind{Group: info.GVK.Group}, "", errs)
		}
		if err := validateAdmission(rq, obj, opts); err != nil {
			return err
		}
		if obj, err = answer(rq, obj); err != nil {
			return err
		}
		return rq.SendObject(http.StatusCreated, obj, info.GVK)
	}
}

// reviewSelfSubject answers a SelfSubjectReview: who the user is.
func (h *handlers) reviewSelfSubject(rq *verbs.Request, _ catalog.Object) (catalog.Object, error) {
	return &authenticationv1.SelfSubjectReview{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Now())},
		Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: *rq.User}}, nil
}

// reviewToken answers a TokenReview: whose token it is, and for which audiences it is valid.
func (h *handlers) reviewToken(rq *verbs.Request, obj catalog.Object) (catalog.Object, error) {
	r := obj.(*authenticationv1.TokenReview)
	if r.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	user, audiences, err := h.Authentication.AuthenticateToken(rq.Ctx, r.Spec.Token, r.Spec.Audiences)
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: err == nil && user != nil}
	if err != nil {
		r.Status.Error = err.Error()
	} else if user != nil {
		r.Status.User, r.Status.Audiences = *user, audiences
	}
	return r, nil
}

// reviewAccess answers a SubjectAccessReview: whether a user may do something.
func (h *handlers) reviewAccess(rq *verbs.Request, obj catalog.Object) (catalog.Object, error) {
	r := obj.(*authorizationv1.SubjectAccessReview)
	r.Status = h.accessStatus(rq.Ctx, subject(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return r, nil
}

// reviewLocalAccess answers a LocalSubjectAccessReview: whether a user may do something in a namespace.
func (h *handlers) reviewLocalAccess(rq *verbs.Request, obj catalog.Object) (catalog.Object, error) {
	r := obj.(*authorizationv1.LocalSubjectAccessReview)
	r.Status = h.accessStatus(rq.Ctx, subject(&r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return r, nil
}

// reviewSelfAccess answers a SelfSubjectAccessReview: whether the user who asks may do something.
func (h *handlers) reviewSelfAccess(rq *verbs.Request, obj catalog.Object) (catalog.Object, error) {
	r := obj.(*authorizationv1.SelfSubjectAccessReview)
	r.Status = h.accessStatus(rq.Ctx, rq.User, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return r, nil
}

// subject returns the user that a SubjectAccessReview asks about.
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

// accessStatus returns the status of a review about access: the decision of the authorizer.
func (h *handlers) accessStatus(ctx context.Context, user *authn.User, resource *authorizationv1.ResourceAttributes, other *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
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
	decision, reason, err := h.API.Authorizer.Authorize(ctx, a)
	if err != nil {
		problems = append([]string{err.Error()}, problems...)
	}
	return authorizationv1.SubjectAccessReviewStatus{Allowed: decision == authz.Allow, Denied: decision == authz.Deny, Reason: reason,
		EvaluationError: strings.Join(problems, "; ")}
}

// reviewSelfRules answers a SelfSubjectRulesReview: what the user who asks may do in a namespace.
func (h *handlers) reviewSelfRules(rq *verbs.Request, obj catalog.Object) (catalog.Object, error) {
	namespace := obj.(*authorizationv1.SelfSubjectRulesReview).Spec.Namespace
	if namespace == "" {
		return nil, apierrors.NewBadRequest("no namespace on request")
	}
	rules, err := authz.RulesOf(rq.Ctx, h.API.Authorizer, rq.User, namespace)
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
