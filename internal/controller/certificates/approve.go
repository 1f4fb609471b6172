package certificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/bootstrap"
)

// NewApprover returns the loop that approves nodes' client certificates. Its keys are CertificateSigningRequests.
func NewApprover(deps controller.Deps) controller.Loop {
	requests, nodes, secrets := deps.Informers.Certificates().V1().CertificateSigningRequests(), deps.Informers.Core().V1().Nodes(), deps.Informers.Core().V1().Secrets()
	a := &approver{requests: requests.Lister(), requestsOf: indexByNode(requests.Informer()), secrets: secrets.Lister(), reserved: newReserved(deps.Config.ClusterDomain, nil), fulfilled: map[string]bool{},
		recent: map[string]*certificatesv1.CertificateSigningRequest{}}
	return overRequests(requests, controller.Loop{
		Name: "certificatesigningrequest-approving-controller", ServiceAccount: account, QueueName: "certificate",
		Workers: 1, // two machines may ask for one name at the same time
		Watch: []controller.Watch{
			{Informer: secrets.Informer(), Type: &corev1.Secret{}, Keys: a.waitingForToken},
			{Informer: nodes.Informer(), Keys: a.nodeDeleted},
		},
	}, a.decide)
}

type approver struct {
	requests   certificateslisters.CertificateSigningRequestLister
	requestsOf byNode
	secrets    corelisters.SecretLister
	reserved   reserved

	mu sync.Mutex
	// fulfilled holds the approved requests whose node was deleted since: they no longer reserve the name for their key.
	fulfilled map[string]bool
	// recent holds by node the request that was approved last: the cache may not have observed that yet.
	recent map[string]*certificatesv1.CertificateSigningRequest
}

// waitingForToken returns the requests that were made with a token that the cache had not observed yet.
func (a *approver) waitingForToken(before, after metav1.Object) []controller.Key {
	token, ok := after.(*corev1.Secret)
	if !ok || before != nil || token.Type != corev1.SecretTypeBootstrapToken || token.Namespace != metav1.NamespaceSystem {
		return nil
	}
	return undecided(a.requests, certificatesv1.KubeAPIServerClientKubeletSignerName, bootstrapUser+strings.TrimPrefix(token.Name, tokenPrefix))
}

// nodeDeleted notes which requests no longer reserve the name of a deleted node. It returns no keys.
func (a *approver) nodeDeleted(before, after metav1.Object) []controller.Key {
	if after != nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.fulfilled {
		if _, err := a.requests.Get(name); err != nil {
			delete(a.fulfilled, name)
		}
	}
	for _, csr := range a.requestsOf(before.GetName()) {
		if approved(csr) {
			a.fulfilled[csr.Name] = true
		}
	}
	delete(a.recent, before.GetName())
	return nil
}

// undecided returns the requests of a user to a signer that are neither approved nor denied.
func undecided(requests certificateslisters.CertificateSigningRequestLister, signer, user string) (keys []controller.Key) {
	all, _ := requests.List(labels.Everything()) // a lister over a cache cannot fail
	for _, csr := range all {
		if csr.Spec.SignerName == signer && csr.Spec.Username == user && !decided(csr) {
			keys = append(keys, controller.KeyOf(csr))
		}
	}
	return keys
}

// decide approves or denies a request, or leaves it to others.
func (a *approver) decide(csr *certificatesv1.CertificateSigningRequest, now time.Time) controller.Decision {
	request, err := pendingRequest(csr, certificatesv1.KubeAPIServerClientKubeletSignerName)
	if request == nil {
		return controller.Decision{Err: err}
	}
	if csr.Spec.Username == request.Subject.CommonName {
		return a.ifAllowed(csr, "selfnodeclient", func() controller.Decision {
			return approve(csr, now, "Auto approving self kubelet client certificate after SubjectAccessReview.")
		})
	}
	return a.ifAllowed(csr, "nodeclient", func() controller.Decision { return a.join(csr, request, now) })
}

// ifAllowed goes on with allowed if the author of a request may create certificatesigningrequests/SUBRESOURCE, which means to have it approved.
func (a *approver) ifAllowed(csr *certificatesv1.CertificateSigningRequest, subresource string, allowed func() controller.Decision) controller.Decision {
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

// join decides about a machine that asks for the name of a node: by the Node of that name, the keys that may have the name, and the uses of its token.
func (a *approver) join(csr *certificatesv1.CertificateSigningRequest, request *x509.CertificateRequest, now time.Time) controller.Decision {
	name := strings.TrimPrefix(request.Subject.CommonName, nodePrefix)
	if why := a.reserved.nodeName(name); why != "" {
		return deny(csr, now, why)
	}
	var node *corev1.Node
	// The Node is read from the API: one that the cache has not observed yet must not be taken over.
	get := controller.Call("get node "+name, func(ctx context.Context, c *client.Client) (err error) {
		node, err = c.Kubernetes().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			node, err = nil, nil
		}
		return err
	})
	return controller.Decision{Actions: []controller.Action{get}, Then: func(err error) controller.Decision {
		if err != nil {
			return controller.Decision{Err: err}
		}
		key := fingerprint(request.RawSubjectPublicKeyInfo)
		if why := a.taken(name, key, node, now); why != "" {
			return deny(csr, now, why)
		}
		return a.useToken(csr, bootstrap.Use{Key: key, Node: name, At: now}, now)
	}}
}

// taken returns why a key cannot have the name of a node, or "". The name of a Node belongs to the key that is recorded in it. Without a Node it belongs
// for JoinTime to the key that was approved last, so that two machines do not join under one name.
func (a *approver) taken(name, key string, node *corev1.Node, now time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	latest := a.requestsOf.newest(name, approved)
	if recent := a.recent[name]; recent != nil && (latest == nil || later(recent, latest)) {
		latest = recent
	}
	approvedKey := ""
	if latest != nil {
		if request, err := parse(latest); err == nil {
			approvedKey = fingerprint(request.RawSubjectPublicKeyInfo)
		}
	}
	if node != nil {
		recorded := node.Labels[KeyLabel]
		if recorded == key || recorded == "" && approvedKey == key { // or it is about to be recorded
			return ""
		}
		return fmt.Sprintf("node %s is in the cluster already, with another key: another machine has that name. Choose another name for this one (--node-name), or, if this machine was set up "+
			"anew, delete the node first: kubectl delete node %s", name, name)
	}
	if latest == nil || approvedKey == key {
		return ""
	}
	if left := latest.CreationTimestamp.Add(bootstrap.JoinTime).Sub(now); left > 0 && !a.fulfilled[latest.Name] {
		return fmt.Sprintf("another machine is joining as node %s: choose another name for this one (--node-name), or, if it is the same machine with another key, try again in %v",
			name, left.Round(time.Second))
	}
	return ""
}

// useToken approves a request if its token may still be used. It records the use in the token's Secret before: of two machines that come with the last
// use at the same time, one gets a conflict and is then denied. A machine whose key is recorded may ask again.
func (a *approver) useToken(csr *certificatesv1.CertificateSigningRequest, use bootstrap.Use, now time.Time) controller.Decision {
	approval := func() controller.Decision {
		a.mu.Lock()
		defer a.mu.Unlock()
		for name, recent := range a.recent {
			if now.Sub(recent.CreationTimestamp.Time) > bootstrap.JoinTime {
				delete(a.recent, name)
			}
		}
		a.recent[use.Node] = csr
		return approve(csr, now, "Auto approving kubelet client certificate after SubjectAccessReview.")
	}
	id, ok := strings.CutPrefix(csr.Spec.Username, bootstrapUser)
	if !ok {
		return approval() // an administrator has allowed the author to do this
	}
	secret, err := a.secrets.Secrets(metav1.NamespaceSystem).Get(tokenPrefix + id)
	if err != nil {
		return controller.Nothing // the cache has not observed the token yet, or it was deleted so that no machine joins with it
	}
	limit, limited := bootstrap.Uses(secret)
	used := bootstrap.UsedBy(secret)
	switch {
	case !limited, slices.ContainsFunc(used, func(u bootstrap.Use) bool { return u.Key == use.Key && u.Node == use.Node }):
		return approval()
	case len(used) >= limit:
		return deny(csr, now, fmt.Sprintf("token %s is used up: %s. \"skiff token create\" on the server makes another", id, joinedWith(used)))
	}
	return controller.Decision{Actions: []controller.Action{controller.Update(bootstrap.WithUse(secret, use))}, Then: func(err error) controller.Decision {
		if err != nil {
			return controller.Decision{Err: err}
		}
		return approval()
	}}
}

// joinedWith names the machines that joined with a token, at most five of them.
func joinedWith(used []bootstrap.Use) string {
	const few = 5
	if len(used) == 0 {
		return "it lets nobody in"
	}
	var names []string
	for _, u := range used[:min(len(used), few)] {
		names = append(names, u.Node)
	}
	text := strings.Join(names, ", ")
	if len(used) > few {
		text += fmt.Sprintf(" and %d more", len(used)-few)
	}
	return text + " joined with it"
}

func approve(csr *certificatesv1.CertificateSigningRequest, now time.Time, message string) controller.Decision {
	return setApproval(csr, now, certificatesv1.CertificateApproved, "AutoApproved", message)
}

func deny(csr *certificatesv1.CertificateSigningRequest, now time.Time, message string) controller.Decision {
	return setApproval(csr, now, certificatesv1.CertificateDenied, "AutoDenied", message)
}

func setApproval(csr *certificatesv1.CertificateSigningRequest, now time.Time, kind certificatesv1.RequestConditionType, reason, message string) controller.Decision {
	csr = csr.DeepCopy()
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		LastUpdateTime: metav1.NewTime(now)})
	what := strings.ToLower(string(kind)) + " " + csr.Name + ": " + message
	return controller.Decision{Actions: []controller.Action{controller.Call(what, func(ctx context.Context, c *client.Client) error {
		_, err := c.Kubernetes().CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
		return err
	})}}
}
