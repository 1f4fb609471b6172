package bootstrap

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"skiff/internal/controller"
)

const (
	bootstrapUser = "system:bootstrap:"
	nodePrefix    = "system:node:"
	// SingleUseKey is what the Secret of a token says, besides what Kubernetes knows, if the token is for one machine alone.
	SingleUseKey = "usage-skiff-single"
	// joinTime is how long a machine that got its certificate may take to become a node, until a token for one machine alone goes anyway.
	joinTime = 2 * time.Minute
)

// NewCleaner returns the loop that removes tokens whose time is over, and tokens for one machine once it has joined. Its keys are Secrets.
func NewCleaner(deps controller.Deps) controller.Loop {
	secrets, nodes := deps.Informers.Core().V1().Secrets(), deps.Informers.Core().V1().Nodes()
	requests := deps.Informers.Certificates().V1().CertificateSigningRequests()
	find, asked, known := secrets.Lister(), requests.Lister(), nodes.Lister()
	return controller.Loop{
		Name: "token-cleaner-controller", Account: "token-cleaner", Queue: "token_cleaner", Workers: 1,
		Watch: []controller.Watch{
			{Informer: secrets.Informer(), Of: &corev1.Secret{}, Keys: func(_, after metav1.Object) []controller.Key {
				if secret, ok := after.(*corev1.Secret); ok && isToken(secret) {
					return []controller.Key{controller.KeyOf(secret)}
				}
				return nil
			}},
			{Informer: requests.Informer(), Keys: func(_, after metav1.Object) []controller.Key {
				if csr, ok := after.(*certificatesv1.CertificateSigningRequest); ok {
					return tokenOf(csr)
				}
				return nil
			}},
			{Informer: nodes.Informer(), Keys: func(before, after metav1.Object) (keys []controller.Key) {
				if before != nil || after == nil {
					return nil
				}
				all, _ := asked.List(labels.Everything()) // it cannot fail
				for _, csr := range all {
					if nodeOf(csr) == after.GetName() {
						keys = append(keys, tokenOf(csr)...)
					}
				}
				return keys
			}},
		},
		Look: func(key controller.Key, now time.Time) controller.Decision {
			secret, err := find.Secrets(key.Namespace).Get(key.Name)
			if err != nil || !isToken(secret) {
				return controller.Nothing
			}
			all, _ := asked.List(labels.Everything()) // it cannot fail
			return decideToken(secret, all, known, now)
		},
	}
}

// tokenOf is the token that a request was made with.
func tokenOf(csr *certificatesv1.CertificateSigningRequest) []controller.Key {
	id, ok := strings.CutPrefix(csr.Spec.Username, bootstrapUser)
	if !ok {
		return nil
	}
	return []controller.Key{{Namespace: metav1.NamespaceSystem, Name: secretPrefix + id}}
}

// nodeOf is the node that got a certificate by a request.
func nodeOf(csr *certificatesv1.CertificateSigningRequest) string {
	block, _ := pem.Decode(csr.Status.Certificate)
	if block == nil {
		return ""
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(cert.Subject.CommonName, nodePrefix)
}

// decideToken removes a token that is of no more use. One for one machine stays until that machine has fetched its certificate, which it shows by being a node.
func decideToken(secret *corev1.Secret, requests []*certificatesv1.CertificateSigningRequest, nodes corelisters.NodeLister, now time.Time) controller.Decision {
	remove := controller.Decision{Actions: []controller.Action{controller.Delete(secret, metav1.DeleteOptions{})}}
	var again time.Duration
	if at, limited := ends(secret); limited {
		if again = at.Sub(now); again <= 0 {
			return remove
		}
	}
	if string(secret.Data[SingleUseKey]) != "true" {
		return controller.Decision{Again: again}
	}
	user := bootstrapUser + string(secret.Data[idKey])
	for _, csr := range requests {
		name := nodeOf(csr)
		if csr.Spec.Username != user || name == "" {
			continue
		}
		left := csr.CreationTimestamp.Add(joinTime).Sub(now)
		if node, err := nodes.Get(name); err == nil && !node.CreationTimestamp.Time.Before(csr.CreationTimestamp.Time) || left <= 0 {
			return remove
		}
		if again <= 0 || left < again {
			again = left
		}
	}
	return controller.Decision{Again: again}
}
