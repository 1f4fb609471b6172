package join

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/util/keyutil"
)

const (
	nodePrefix = "system:node:"
	nodesGroup = "system:nodes"

	// approvalTimeout bounds how long a request waits for its approval.
	approvalTimeout = 15 * time.Minute
	minPollPeriod   = 10 * time.Millisecond
	maxPollPeriod   = 2 * time.Second
	// logAfter is how long a request waits before a log line says how to approve it.
	logAfter = 5 * time.Second
)

// certificateSpec is what a CertificateSigningRequest of a node asks for.
type certificateSpec struct {
	signer string
	node   string
	hosts  []string
	usage  certificatesv1.KeyUsage
	keyPEM []byte // the key to certify; a new one if empty
}

// newKey returns a new private key in PEM.
func newKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return keyutil.MarshalPrivateKeyToPEM(key)
}

// requestCertificate creates a CertificateSigningRequest and waits until it is signed.
func requestCertificate(ctx context.Context, c certificatesclient.CertificateSigningRequestInterface, spec certificateSpec, log *slog.Logger) (certPEM, keyPEM []byte, err error) {
	if keyPEM = spec.keyPEM; keyPEM == nil {
		if keyPEM, err = newKey(); err != nil {
			return nil, nil, err
		}
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to parse the key to certify: %w", err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: nodePrefix + spec.node, Organization: []string{nodesGroup}}}
	for _, host := range spec.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, nil, err
	}
	csr, err := c.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "node-csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: spec.signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, spec.usage},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, nil, err
	}
	certPEM, err = awaitSigned(ctx, c, csr.Name, log)
	return certPEM, keyPEM, err
}

// awaitSigned waits until a request is signed, denied or failed, and returns the certificate.
func awaitSigned(ctx context.Context, c certificatesclient.CertificateSigningRequestInterface, name string, log *slog.Logger) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, approvalTimeout, fmt.Errorf("nobody approved CertificateSigningRequest %s in %v; \"kubectl certificate approve\" does", name, approvalTimeout))
	defer cancel()
	logAt := time.Now().Add(logAfter)
	for period := minPollPeriod; ; period = min(period*3/2, maxPollPeriod) {
		csr, err := c.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			if certPEM, err := result(csr); certPEM != nil || err != nil {
				return certPEM, err
			}
		case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			return nil, err
		}
		if !logAt.IsZero() && time.Now().After(logAt) {
			logAt = time.Time{}
			log.Warn("waiting until a CertificateSigningRequest is approved", "request", name, "to approve it", "kubectl certificate approve "+name)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(period):
		}
	}
}

// result returns the certificate of a request, an error if it was denied or failed, and nil if it is pending.
func result(csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	for _, condition := range csr.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateDenied:
			return nil, refused("the cluster denied CertificateSigningRequest %s: %s", csr.Name, condition.Message)
		case certificatesv1.CertificateFailed:
			return nil, refused("the cluster failed to sign CertificateSigningRequest %s: %s", csr.Name, condition.Message)
		}
	}
	return csr.Status.Certificate, nil
}
