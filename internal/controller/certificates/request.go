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

// The names of nodes as users, and their group.
const (
	nodePrefix     = "system:node:"
	nodesGroup     = "system:nodes"
	mastersGroup   = "system:masters"
	bootstrapUser  = "system:bootstrap:"
	tokenPrefix    = "bootstrap-token-"
	legacySigner   = "kubernetes.io/legacy-unknown"
	requestPEMType = "CERTIFICATE REQUEST"
)

// over makes a loop one over CertificateSigningRequests: they are its keys, and it decides about those that are still there. What else it watches, it says.
func over(requests certificatesinformers.CertificateSigningRequestInformer, loop controller.Loop, decide func(*certificatesv1.CertificateSigningRequest, time.Time) controller.Decision) controller.Loop {
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

// parse reads what is asked for.
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

// waits is what is asked for by a request to a signer that waits for a decision. It is nil if the request is none of those, or is one that the signer would
// not sign: an administrator may look at it.
func waits(csr *certificatesv1.CertificateSigningRequest, signer string) (*x509.CertificateRequest, error) {
	if decided(csr) || len(csr.Status.Certificate) > 0 || csr.Spec.SignerName != signer {
		return nil, nil
	}
	request, err := parse(csr)
	if err != nil || checkFor(signer, request, csr.Spec.Usages) != nil {
		return nil, err
	}
	return request, nil
}

// condition is a condition of a request that is true, or nil.
func condition(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) *certificatesv1.CertificateSigningRequestCondition {
	for i, c := range csr.Status.Conditions {
		if c.Type == kind && (c.Status == corev1.ConditionTrue || c.Status == "") {
			return &csr.Status.Conditions[i]
		}
	}
	return nil
}

// decided says whether somebody has approved or denied a request.
func decided(csr *certificatesv1.CertificateSigningRequest) bool {
	return condition(csr, certificatesv1.CertificateApproved) != nil || condition(csr, certificatesv1.CertificateDenied) != nil
}

// approved says whether a request may be signed.
func approved(csr *certificatesv1.CertificateSigningRequest) bool {
	return condition(csr, certificatesv1.CertificateApproved) != nil && condition(csr, certificatesv1.CertificateDenied) == nil
}

// checkFor says why a signer does not sign such a request.
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

// checkNoMaster refuses the group that is allowed everything whatever the authorizers say. Admission refuses such requests too, but can be turned off.
func checkNoMaster(signer string, request *x509.CertificateRequest) error {
	if slices.Contains(request.Subject.Organization, mastersGroup) {
		return fmt.Errorf("use of %s signer with %s group is not allowed: no certificate of that group can be withdrawn", signer, mastersGroup)
	}
	return nil
}

// signs says whether the loop signs for a signer.
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

// checkUsages wants a digital signature and one other use, and lets keys be enciphered, which RSA needs.
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
