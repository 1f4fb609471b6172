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

	// signTime bounds how long a request waits for somebody who approves it.
	signTime   = 15 * time.Minute
	firstPause = 10 * time.Millisecond
	longPause  = 2 * time.Second
	// patience is after what time a person is told what is waited for.
	patience = 5 * time.Second
)

// wish is a certificate that a node wants.
type wish struct {
	signer string
	node   string
	hosts  []string
	use    certificatesv1.KeyUsage
	keyPEM []byte // of the key to be certified; a new one if empty
}

// newKey makes a private key, in PEM.
func newKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return keyutil.MarshalPrivateKeyToPEM(key)
}

// ask has a certificate made for a key and waits for it.
func ask(ctx context.Context, c certificatesclient.CertificateSigningRequestInterface, w wish, log *slog.Logger) (certPEM, keyPEM []byte, err error) {
	if keyPEM = w.keyPEM; keyPEM == nil {
		if keyPEM, err = newKey(); err != nil {
			return nil, nil, err
		}
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, nil, fmt.Errorf("the key to be certified: %w", err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: nodePrefix + w.node, Organization: []string{nodesGroup}}}
	for _, host := range w.hosts {
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
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: w.signer, Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, w.use},
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, nil, err
	}
	certPEM, err = await(ctx, c, csr.Name, log)
	return certPEM, keyPEM, err
}

// await waits until a request is signed, or refused.
func await(ctx context.Context, c certificatesclient.CertificateSigningRequestInterface, name string, log *slog.Logger) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, signTime, fmt.Errorf("nobody approved the request %s in %v", name, signTime))
	defer cancel()
	told := time.Now().Add(patience)
	for pause := firstPause; ; pause = min(pause*3/2, longPause) {
		csr, err := c.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil:
			if certificate, err := outcome(csr); certificate != nil || err != nil {
				return certificate, err
			}
		case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			return nil, err
		}
		if !told.IsZero() && time.Now().After(told) {
			told = time.Time{}
			log.Warn("waiting for a certificate", "request", name, "to approve it", "kubectl certificate approve "+name)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

func outcome(csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	for _, condition := range csr.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateDenied:
			return nil, refused("the cluster refuses: %s", condition.Message)
		case certificatesv1.CertificateFailed:
			return nil, refused("the cluster cannot sign the certificate: %s", condition.Message)
		}
	}
	return csr.Status.Certificate, nil
}
