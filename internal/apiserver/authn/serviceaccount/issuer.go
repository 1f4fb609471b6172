package serviceaccount

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/jws"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

const (
	defaultExpiration = 60 * 60
	// injectedExpiration is the lifetime of the tokens that admission mounts into Pods. Programs that read such a token only once would stop
	// working: with ExtendExpiration the token is valid for extendedExpiration, and its use after injectedExpiration is annotated.
	injectedExpiration = 60*60 + 7
	extendedExpiration = 365 * 24 * 60 * 60

	webhookTokens = "APIServerWebhookAuthenticationToken" // a disabled feature gate
)

var tokenRequest = schema.GroupKind{Group: authenticationv1.GroupName, Kind: "TokenRequest"}

// Issuer issues tokens for service accounts.
type Issuer struct {
	Issuer           string
	Audiences        []string // of this API server
	Signer           *jws.Signer
	MaxExpiration    time.Duration // 0 means no limit
	ExtendExpiration bool
	Objects          objects.Reader
	Clock            clock.PassiveClock
	Notes            authn.Notes
}

// Request returns a TokenRequest with a token for the service account. admit, if not nil, may refuse the defaulted request before the token is issued.
func (i *Issuer) Request(ctx context.Context, namespace, name string, asked *authenticationv1.TokenRequest,
	admit func(*authenticationv1.TokenRequest) error) (*authenticationv1.TokenRequest, error) {
	req := asked.DeepCopy()
	now := i.Clock.Now()
	account, err := i.complete(ctx, namespace, name, req, now)
	if err != nil {
		return nil, err
	}
	if errs := validateRequest(req); len(errs) > 0 {
		return nil, apierrors.NewInvalid(tokenRequest, "", errs)
	}
	if admit != nil {
		if err := admit(req.DeepCopy()); err != nil {
			return nil, err
		}
	}
	to := &bound{Namespace: account.GetNamespace(), ServiceAccount: ref{account.GetName(), string(account.GetUID())}}
	if err := i.bind(ctx, to, req.Spec.BoundObjectRef); err != nil {
		return nil, err
	}
	lifetime := i.lifetime(ctx, req, to, now)
	c := &claims{Issuer: i.Issuer, Subject: authn.ServiceAccountUser(namespace, name), Audience: req.Spec.Audiences, ID: string(uuid.NewUUID()),
		IssuedAt: secondsOf(now), NotBefore: secondsOf(now), Expiry: secondsOf(now.Add(lifetime)), Kubernetes: to}
	token, err := i.sign(c)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("failed to generate token: %w", err))
	}
	i.Notes.Annotate(ctx, "authentication.kubernetes.io/issued-credential-id", credentialID(c.ID))
	expiration := now.Add(time.Duration(*req.Spec.ExpirationSeconds) * time.Second)
	req.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(expiration)}
	return req, nil
}

// LegacyToken returns the token for a Secret of type kubernetes.io/service-account-token.
func (i *Issuer) LegacyToken(account *corev1.ServiceAccount, secret *corev1.Secret) (string, error) {
	return i.sign(&claims{Issuer: LegacyIssuer, Subject: authn.ServiceAccountUser(account.Namespace, account.Name), LegacyNamespace: account.Namespace,
		LegacySecret: secret.Name, LegacyName: account.Name, LegacyUID: string(account.UID)})
}

func (i *Issuer) sign(c *claims) (string, error) {
	payload, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	return i.Signer.Sign(payload)
}

// complete returns the service account, and sets the defaults of the request.
func (i *Issuer) complete(ctx context.Context, namespace, name string, req *authenticationv1.TokenRequest, now time.Time) (catalog.Object, error) {
	mustMatch := func(what, value string) error {
		return apierrors.NewInvalid(tokenRequest, name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", what), value, "must match the service account "+what+" if specified")})
	}
	if req.Name != "" && req.Name != name {
		return nil, mustMatch("name", req.Name)
	}
	if req.Namespace != "" && req.Namespace != namespace {
		return nil, mustMatch("namespace", req.Namespace)
	}
	account, err := i.Objects.Fresh(ctx, corev1.Resource("serviceaccounts"), namespace, name)
	if err != nil {
		return nil, err
	}
	if req.UID != "" && req.UID != account.GetUID() {
		return nil, apierrors.NewConflict(schema.GroupResource{Group: tokenRequest.Group, Resource: tokenRequest.Kind}, name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", req.UID, account.GetUID()))
	}
	req.Name, req.Namespace, req.UID = account.GetName(), account.GetNamespace(), account.GetUID()
	req.CreationTimestamp, req.Status = metav1.NewTime(now), authenticationv1.TokenRequestStatus{}
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = i.Audiences
	}
	if req.Spec.ExpirationSeconds == nil {
		seconds := int64(defaultExpiration)
		req.Spec.ExpirationSeconds = &seconds
	}
	return account, nil
}

// bind puts the referenced object into the claims, if it exists and may be bound to.
func (i *Issuer) bind(ctx context.Context, to *bound, reference *authenticationv1.BoundObjectReference) error {
	if reference == nil {
		return nil
	}
	kind := schema.FromAPIVersionAndKind(reference.APIVersion, reference.Kind)
	namespace, resource, into := to.Namespace, "", (**ref)(nil)
	switch {
	case kind.Group == "" && kind.Kind == "Pod":
		resource, into = "pods", &to.Pod
	case kind.Group == "" && kind.Kind == "Secret":
		resource, into = "secrets", &to.Secret
	case kind.Group == "" && kind.Kind == "Node":
		namespace, resource, into = "", "nodes", &to.Node
	case isWebhook(reference):
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s (feature gate %s is disabled)", kind, webhookTokens))
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", kind))
	}
	obj, err := i.Objects.Fresh(ctx, corev1.Resource(resource), namespace, reference.Name)
	if err != nil {
		return err
	}
	if pod, ok := obj.(*corev1.Pod); ok {
		if pod.Spec.ServiceAccountName != to.ServiceAccount.Name {
			return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", to.ServiceAccount.Name))
		}
		if to.Node, err = i.nodeOf(ctx, pod); err != nil {
			return err
		}
	}
	if reference.UID != "" && reference.UID != obj.GetUID() {
		return apierrors.NewConflict(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, reference.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", reference.UID))
	}
	*into = &ref{obj.GetName(), string(obj.GetUID())}
	return nil
}

// nodeOf returns the node a Pod is bound to, nil if none; a node that no longer exists is named without a UID.
func (i *Issuer) nodeOf(ctx context.Context, pod *corev1.Pod) (*ref, error) {
	name := pod.Spec.NodeName
	if name == "" {
		return nil, nil
	}
	node := i.Objects.Get(corev1.Resource("nodes"), "", name)
	if node == nil {
		var err error
		switch node, err = i.Objects.Fresh(ctx, corev1.Resource("nodes"), "", name); {
		case apierrors.IsNotFound(err):
			return &ref{Name: name}, nil
		case err != nil:
			return nil, apierrors.NewInternalError(err)
		}
	}
	return &ref{node.GetName(), string(node.GetUID())}, nil
}

// lifetime returns the lifetime of the token, which may be longer than the response says. See injectedExpiration.
func (i *Issuer) lifetime(ctx context.Context, req *authenticationv1.TokenRequest, to *bound, now time.Time) time.Duration {
	wanted := *req.Spec.ExpirationSeconds
	if most := int64(i.MaxExpiration.Seconds()); most > 0 && wanted > most {
		i.Notes.Warn(ctx, fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", wanted, most))
		wanted = most
		req.Spec.ExpirationSeconds = &wanted
	}
	foreign := func(a string) bool { return !slices.Contains(i.Audiences, a) }
	if i.ExtendExpiration && to.Pod != nil && wanted == injectedExpiration && !slices.ContainsFunc(req.Spec.Audiences, foreign) {
		to.WarnAfter = secondsOf(now.Add(injectedExpiration * time.Second))
		return extendedExpiration * time.Second
	}
	return time.Duration(wanted) * time.Second
}

// CheckMaxExpiration returns an error if --service-account-max-token-expiration is out of range.
func CheckMaxExpiration(limit time.Duration) error {
	if limit != 0 && (limit < time.Hour || limit > maxExpiration*time.Second) {
		return errors.New("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds")
	}
	return nil
}
