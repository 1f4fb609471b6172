package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"

	"skiff/internal/controller"
)

// User names of nodes and bootstrap tokens, their groups, and other fixed names.
const (
	nodePrefix     = "system:node:"
	nodesGroup     = "system:nodes"
	mastersGroup   = "system:masters"
	bootstrapUser  = "system:bootstrap:"
	tokenPrefix    = "bootstrap-token-"
	legacySigner   = "kubernetes.io/legacy-unknown"
	requestPEMType = "CERTIFICATE REQUEST"
)

// overRequests makes CertificateSigningRequests the keys of a loop, which decides about those that still exist. It keeps the loop's other watches.
func overRequests(requests certificatesinformers.CertificateSigningRequestInformer, loop controller.Loop, decide func(*certificatesv1.CertificateSigningRequest, time.Time) controller.Decision) controller.Loop {
	lister := requests.Lister()
	loop.Watch = append([]controller.Watch{{Informer: requests.Informer(), Type: &certificatesv1.CertificateSigningRequest{}}}, loop.Watch...)
	loop.Reconcile = func(key controller.Key, now time.Time) controller.Decision {
		csr, err := lister.Get(key.Name)
		if err != nil {
			return controller.Nothing
		}
		return decide(csr, now)
	}
	return loop
}

// parse parses the PKCS#10 request.
func parse(csr *certificatesv1.CertificateSigningRequest) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil || block.Type != requestPEMType {
		return nil, fmt.Errorf("unable to parse csr %q: PEM block type must be CERTIFICATE REQUEST", csr.Name)
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("unable to parse csr %q: %w", csr.Name, err)
	}
	return request, nil
}

// pendingRequest returns the parsed request if it is to the signer and undecided. It returns nil for others, and for those that the signer would not
// sign: an administrator may decide about them.
func pendingRequest(csr *certificatesv1.CertificateSigningRequest, signer string) (*x509.CertificateRequest, error) {
	if decided(csr) || len(csr.Status.Certificate) > 0 || csr.Spec.SignerName != signer {
		return nil, nil
	}
	request, err := parse(csr)
	if err != nil || checkFor(signer, request, csr.Spec.Usages) != nil {
		return nil, err
	}
	return request, nil
}

// condition returns a condition of a request that is true, or nil.
func condition(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i, c := range csr.Status.Conditions {
		if c.Type == kind && (c.Status == corev1.ConditionTrue || c.Status == "") {
			return &csr.Status.Conditions[i]
		}
	}
	return nil
}

// decided reports whether a request was approved or denied.
func decided(csr *certificatesv1.CertificateSigningRequest) bool {
	return condition(csr, certificatesv1.CertificateApproved) != nil || condition(csr, certificatesv1.CertificateDenied) != nil
}

// approved reports whether a request was approved and not denied.
func approved(csr *certificatesv1.CertificateSigningRequest) bool {
	return condition(csr, certificatesv1.CertificateApproved) != nil && condition(csr, certificatesv1.CertificateDenied) == nil
}

// checkFor returns why a signer does not sign a request, or nil.
func checkFor(signer string, request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch signer {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return checkNodeClient(request, usages)
	case certificatesv1.KubeletServingSignerName:
		return checkNodeServing(request, usages)
	case certificatesv1.KubeAPIServerClientSignerName:
		if err := checkClient(usages); err != nil {
			return err
		}
		return checkNoMaster(signer, request)
	case legacySigner:
		return checkNoMaster(signer, request)
	}
	return nil
}

// checkNoMaster refuses the group that authorizers allow everything. Admission refuses such requests too, but can be turned off.
func checkNoMaster(signer string, request *x509.CertificateRequest) error {
	if slices.Contains(request.Subject.Organization, mastersGroup) {
		return fmt.Errorf("use of %s signer with %s group is not allowed: no certificate of that group can be withdrawn", signer, mastersGroup)
	}
	return nil
}

// signs reports whether the signing loop signs for a signer.
func signs(signer string) bool {
	switch signer {
	case certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientSignerName, legacySigner:
		return true
	}
	return false
}

func checkNode(request *x509.CertificateRequest) error {
	switch {
	case !slices.Equal(request.Subject.Organization, []string{nodesGroup}):
		return errors.New("subject organization is not system:nodes")
	case len(request.EmailAddresses) > 0:
		return errors.New("email subjectAltNames are not allowed")
	case len(request.URIs) > 0:
		return errors.New("URI subjectAltNames are not allowed")
	case !strings.HasPrefix(request.Subject.CommonName, nodePrefix):
		return errors.New("subject common name does not begin with system:node:")
	}
	return nil
}

func checkNodeClient(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch err := checkNode(request); {
	case err != nil:
		return err
	case len(request.DNSNames) > 0:
		return errors.New("DNS subjectAltNames are not allowed")
	case len(request.IPAddresses) > 0:
		return errors.New("IP subjectAltNames are not allowed")
	}
	return checkUsages(usages, certificatesv1.UsageClientAuth)
}

func checkNodeServing(request *x509.CertificateRequest, usages []certificatesv1.KeyUsage) error {
	switch err := checkNode(request); {
	case err != nil:
		return err
	case len(request.DNSNames) == 0 && len(request.IPAddresses) == 0:
		return errors.New("DNS or IP subjectAltName is required")
	}
	return checkUsages(usages, certificatesv1.UsageServerAuth)
}

// checkUsages requires digital signature and one other usage, and allows key encipherment, which RSA needs.
func checkUsages(usages []certificatesv1.KeyUsage, use certificatesv1.KeyUsage) error {
	var signature, used bool
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageDigitalSignature:
			signature = true
		case use:
			used = true
		case certificatesv1.UsageKeyEncipherment:
		default:
			return fmt.Errorf("usages did not match [digital signature, %s] or these with key encipherment", use)
		}
	}
	if !signature || !used {
		return fmt.Errorf("usages did not match [digital signature, %s] or these with key encipherment", use)
	}
	return nil
}

func checkClient(usages []certificatesv1.KeyUsage) error {
	for _, u := range usages {
		switch u {
		case certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, certificatesv1.UsageClientAuth:
		default:
			return fmt.Errorf("invalid usage for client certificate: %s", u)
		}
	}
	if !slices.Contains(usages, certificatesv1.UsageClientAuth) {
		return fmt.Errorf("missing required usage for client certificate: %s", certificatesv1.UsageClientAuth)
	}
	return nil
}
