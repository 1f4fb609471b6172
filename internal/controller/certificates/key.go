package certificates

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/controller"
)

// The labels of a Node that record the key of its client certificate. The NodeRestriction admission plugin lets no node set labels under
// node-restriction.kubernetes.io, and they are deleted with the Node, which frees the name.
const (
	// KeyLabel is the fingerprint of the public key.
	KeyLabel = "skiff.node-restriction.kubernetes.io/client-key"
	// keySinceLabel is the creation time of the request that the certificate was issued for, in seconds.
	keySinceLabel = "skiff.node-restriction.kubernetes.io/client-key-since"
)

// fingerprint returns the SHA-256 of a public key, in characters that a label may have.
func fingerprint(publicKey []byte) string {
	sum := sha256.Sum256(publicKey)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
}

// NewKeyRecorder returns the loop that records in each Node the key of the newest client certificate that was issued for it. Its keys are Nodes.
func NewKeyRecorder(deps controller.Deps) controller.Loop {
	requests, nodes := deps.Informers.Certificates().V1().CertificateSigningRequests(), deps.Informers.Core().V1().Nodes()
	requestsOf, lister := indexByNode(requests.Informer()), nodes.Lister()
	return controller.Loop{
		Name: "node-client-key-controller", ServiceAccount: account, QueueName: "node_client_key", Workers: 1,
		Watch: []controller.Watch{
			{Informer: nodes.Informer(), Type: &corev1.Node{}, Keys: func(before, after metav1.Object) []controller.Key {
				if after == nil || before != nil && before.GetLabels()[KeyLabel] == after.GetLabels()[KeyLabel] {
					return nil // such as a heartbeat
				}
				return []controller.Key{controller.KeyOf(after)}
			}},
			{Informer: requests.Informer(), Keys: func(_, after metav1.Object) []controller.Key {
				csr, ok := after.(*certificatesv1.CertificateSigningRequest)
				if !ok {
					return nil
				}
				if name := issuedFor(csr); name != "" {
					return []controller.Key{{Name: name}}
				}
				return nil
			}},
		},
		Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			node, err := lister.Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			return record(node, requestsOf.newest(node.Name, func(csr *certificatesv1.CertificateSigningRequest) bool { return len(csr.Status.Certificate) > 0 }))
		},
	}
}

// record records the key of a request in a Node, unless the Node has one that was issued later.
func record(node *corev1.Node, csr *certificatesv1.CertificateSigningRequest) controller.Decision {
	if csr == nil {
		return controller.Nothing
	}
	request, err := parse(csr)
	if err != nil {
		return controller.Nothing
	}
	key, since := fingerprint(request.RawSubjectPublicKeyInfo), csr.CreationTimestamp.Unix()
	recorded, _ := strconv.ParseInt(node.Labels[keySinceLabel], 10, 64) // 0 if there is none
	if since < recorded || node.Labels[KeyLabel] == key {
		return controller.Nothing
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "labels": map[string]string{KeyLabel: key, keySinceLabel: strconv.FormatInt(since, 10)}}})
	if err != nil {
		return controller.Decision{Err: err}
	}
	return controller.Decision{Actions: []controller.Action{controller.Patch(node, "", types.StrategicMergePatchType, patch)}}
}

// issuedFor returns the node that a client certificate was issued for; empty if none was.
func issuedFor(csr *certificatesv1.CertificateSigningRequest) string {
	if len(csr.Status.Certificate) == 0 {
		return ""
	}
	return nodeOf(csr)
}

// nodeOf returns the node that a client certificate is asked for; empty if the request is for something else.
func nodeOf(csr *certificatesv1.CertificateSigningRequest) string {
	if csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return ""
	}
	request, err := parse(csr)
	if err != nil || checkNode(request) != nil {
		return ""
	}
	return strings.TrimPrefix(request.Subject.CommonName, nodePrefix)
}

// nodeIndex is the name of the index of CertificateSigningRequests by the node whose client certificate they ask for.
const nodeIndex = "skiff/node"

// byNode returns the requests for a node's client certificate.
type byNode func(node string) []*certificatesv1.CertificateSigningRequest

// indexByNode adds the index to an informer of requests, so that a request is parsed once and not for every node that joins.
func indexByNode(informer cache.SharedIndexInformer) byNode {
	if _, indexed := informer.GetIndexer().GetIndexers()[nodeIndex]; !indexed {
		index := func(obj any) ([]string, error) {
			if csr, ok := obj.(*certificatesv1.CertificateSigningRequest); ok {
				if node := nodeOf(csr); node != "" {
					return []string{node}, nil
				}
			}
			return nil, nil
		}
		if err := informer.AddIndexers(cache.Indexers{nodeIndex: index}); err != nil {
			panic(err) // the informer was started before the loops were created
		}
	}
	return func(node string) (requests []*certificatesv1.CertificateSigningRequest) {
		found, _ := informer.GetIndexer().ByIndex(nodeIndex, node) // the index exists
		for _, obj := range found {
			requests = append(requests, obj.(*certificatesv1.CertificateSigningRequest))
		}
		return requests
	}
}

// newest returns the latest of the requests for a node's client certificate that holds returns true for, or nil.
func (of byNode) newest(node string, holds func(*certificatesv1.CertificateSigningRequest) bool) (found *certificatesv1.CertificateSigningRequest) {
	for _, csr := range of(node) {
		if holds(csr) && (found == nil || later(csr, found)) {
			found = csr
		}
	}
	return found
}

// later compares requests by creation time, and those of the same second by resourceVersion, which the store increments.
func later(a, b *certificatesv1.CertificateSigningRequest) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return b.CreationTimestamp.Before(&a.CreationTimestamp)
	}
	versionA, _ := strconv.ParseUint(a.ResourceVersion, 10, 64)
	versionB, _ := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return versionA > versionB
}
