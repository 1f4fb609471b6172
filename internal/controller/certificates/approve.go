package certificates

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/bootstrap"
)

// NewApprover returns the loop that approves the certificates by which nodes are known to the API. Its keys are CertificateSigningRequests.
func NewApprover(deps controller.Deps) controller.Loop {
	requests, nodes, secrets := deps.Informers.Certificates().V1().CertificateSigningRequests(), deps.Informers.Core().V1().Nodes(), deps.Informers.Core().V1().Secrets()
	a := &approver{requests: requests.Lister(), nodes: nodes.Lister(), secrets: secrets.Lister(), used: map[string]use{}}
	return over(requests, controller.Loop{
		Name: "certificatesigningrequest-approving-controller", Account: account, Queue: "certificate",
		Workers: 1, // two machines may come with one token at the same time
		Watch: []controller.Watch{
			{Informer: secrets.Informer(), Keys: a.waitingForToken},
			{Informer: nodes.Informer(), Keys: nobody},
		},
	}, a.decide)
}

type approver struct {
	requests certificateslisters.CertificateSigningRequestLister
	nodes    corelisters.NodeLister
	secrets  corelisters.SecretLister

	mu sync.Mutex
	// used is by whom tokens for one machine have been used that the cache may not know of yet.
	used map[string]use
}

type use struct {
	node string
	at   time.Time
	key  []byte
}

// nobody is for what is looked at but wakes nobody.
func nobody(_, _ metav1.Object) []controller.Key { return nil }

// waitingForToken are the requests that were made with a token that the cache did not know yet.
func (a *approver) waitingForToken(before, after metav1.Object) []controller.Key {
	token, ok := after.(*corev1.Secret)
	if !ok || before != nil || token.Type != corev1.SecretTypeBootstrapToken || token.Namespace != metav1.NamespaceSystem {
		return nil
	}
	return undecided(a.requests, certificatesv1.KubeAPIServerClientKubeletSignerName, bootstrapUser+strings.TrimPrefix(token.Name, tokenPrefix))
}

// undecided are the requests of a user to a signer that nobody has decided about.
func undecided(requests certificateslisters.CertificateSigningRequestLister, signer, user string) (keys []controller.Key) {
	all, _ := requests.List(labels.Everything()) // it cannot fail
	for _, csr := range all {
		if csr.Spec.SignerName == signer && csr.Spec.Username == user && !decided(csr) {
			keys = append(keys, controller.KeyOf(csr))
		}
	}
	return keys
}

// decide approves or denies a request, or leaves it to others.
func (a *approver) decide(csr *certificatesv1.CertificateSigningRequest, now time.Time) controller.Decision {
	request, err := waits(csr, certificatesv1.KubeAPIServerClientKubeletSignerName)
	if request == nil {
		return controller.Decision{Err: err}
	}
	if csr.Spec.Username == request.Subject.CommonName {
		return a.ask(csr, "selfnodeclient", func() controller.Decision {
			return approve(csr, now, "Auto approving self kubelet client certificate after SubjectAccessReview.")
		})
	}
	return a.ask(csr, "nodeclient", func() controller.Decision {
		why, known := a.taken(csr, request, now)
		switch {
		case !known:
			return controller.Nothing
		case why != "":
			return deny(csr, now, why)
		}
		return approve(csr, now, "Auto approving kubelet client certificate after SubjectAccessReview.")
	})
}

// ask asks whether the author of a request may create certificatesigningrequests/SUBRESOURCE, which means to have it approved.
func (a *approver) ask(csr *certificatesv1.CertificateSigningRequest, subresource string, allowed func() controller.Decision) controller.Decision {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: csr.Spec.Username, UID: csr.Spec.UID, Groups: csr.Spec.Groups, Extra: map[string]authorizationv1.ExtraValue{},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Subresource: subresource, Verb: "create", Version: "*"},
	}}
	for key, values := range csr.Spec.Extra {
		review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	may := false
	call := controller.Call("review "+subresource+" for "+csr.Spec.Username, func(ctx context.Context, c *client.Client) error {
		answer, err := c.Kubernetes().AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil {
			may = answer.Status.Allowed
		}
		return err
	})
	return controller.Decision{Actions: []controller.Action{call}, Then: func(err error) controller.Decision {
		switch {
		case err != nil:
			return controller.Decision{Err: err}
		case !may:
			return controller.Nothing
		}
		return allowed()
	}}
}

// taken says why a machine that joins cannot have the name it asks for, or cannot join with its token any more. It is not known if the token is not there:
// the cache has not seen it yet, or somebody has deleted it, who does not want the machine to join.
func (a *approver) taken(csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest, now time.Time) (why string, known bool) {
	name := strings.TrimPrefix(request.Subject.CommonName, nodePrefix)
	if node, err := a.nodes.Get(name); err == nil && ready(node) {
		return fmt.Sprintf("node %s is in the cluster already and is Ready: another machine has that name. Choose another name for this one, or, if it is the same machine, "+
			"delete the node first: kubectl delete node %s", name, name), true
	}
	token, ok := strings.CutPrefix(csr.Spec.Username, bootstrapUser)
	if !ok {
		return "", true // somebody whom an administrator has let do this
	}
	secret, err := a.secrets.Secrets(metav1.NamespaceSystem).Get(tokenPrefix + token)
	if err != nil {
		return "", false
	}
	if string(secret.Data[bootstrap.SingleUseKey]) == "true" {
		if by := a.usedBy(csr, request, now); by != "" {
			return fmt.Sprintf("token %s is for one machine, and %s has joined with it", token, by), true
		}
	}
	return "", true
}

// usedBy is who has used a token for one machine before, if that was another machine than the one that asks: one with another key.
func (a *approver) usedBy(csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest, now time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for user, u := range a.used {
		if now.Sub(u.at) > keepDecided { // the cache knows of it since long
			delete(a.used, user)
		}
	}
	if u, ok := a.used[csr.Spec.Username]; ok && !bytes.Equal(u.key, request.RawSubjectPublicKeyInfo) {
		return u.node
	}
	all, _ := a.requests.List(labels.Everything()) // it cannot fail
	for _, other := range all {
		if other.Spec.Username != csr.Spec.Username || !approved(other) {
			continue
		}
		if r, err := parse(other); err == nil && !bytes.Equal(r.RawSubjectPublicKeyInfo, request.RawSubjectPublicKeyInfo) {
			return strings.TrimPrefix(r.Subject.CommonName, nodePrefix)
		}
	}
	a.used[csr.Spec.Username] = use{node: strings.TrimPrefix(request.Subject.CommonName, nodePrefix), key: request.RawSubjectPublicKeyInfo, at: now}
	return ""
}

func ready(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func approve(csr *certificatesv1.CertificateSigningRequest, now time.Time, message string) controller.Decision {
	return judge(csr, now, certificatesv1.CertificateApproved, "AutoApproved", message)
}

func deny(csr *certificatesv1.CertificateSigningRequest, now time.Time, message string) controller.Decision {
	return judge(csr, now, certificatesv1.CertificateDenied, "AutoDenied", message)
}

func judge(csr *certificatesv1.CertificateSigningRequest, now time.Time, kind certificatesv1.RequestConditionType, reason, message string) controller.Decision {
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		LastUpdateTime: metav1.NewTime(now)})
	what := strings.ToLower(string(kind)) + " " + csr.Name + ": " + message
	return controller.Decision{Actions: []controller.Action{controller.Call(what, func(ctx context.Context, c *client.Client) error {
		_, err := c.Kubernetes().CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
		return err
	})}}
}
