package certificates

import (
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"

	"skiff/internal/controller"
)

const (
	defaultLife  = 365 * 24 * time.Hour
	shortestLife = 10 * time.Minute // the shortest that a request may ask for
	// backdating is how long before now a certificate becomes valid, for clocks that are behind. It is at most a tenth of the certificate's life.
	backdating = 5 * time.Minute
	shortLife  = 8 * time.Hour // from this life on the end is moved back too
)

// NewSigner returns the loop that signs approved requests. Its keys are CertificateSigningRequests.
func NewSigner(deps controller.Deps) controller.Loop {
	requests := deps.Informers.Certificates().V1().CertificateSigningRequests()
	life := time.Duration(float64(deps.Config.SigningDuration) * float64(time.Second))
	s := &signer{certFile: deps.Config.SigningCertFile, keyFile: deps.Config.SigningKeyFile, life: cmp.Or(life, defaultLife)}
	return overRequests(requests, controller.Loop{Name: "certificatesigningrequest-signing-controller", ServiceAccount: account, QueueName: "certificate", Workers: 1}, s.decide)
}

// account is the service account that all loops here act as.
const account = "certificate-controller"

// signer signs with the certificate authority in files, which are read each time: they may be renewed meanwhile.
type signer struct {
	certFile, keyFile string
	life              time.Duration
}

func (s *signer) decide(csr *certificatesv1.CertificateSigningRequest, now time.Time) controller.Decision {
	if s.certFile == "" || len(csr.Status.Certificate) > 0 || !approved(csr) || condition(csr, certificatesv1.CertificateFailed) != nil || !signs(csr.Spec.SignerName) {
		return controller.Nothing
	}
	request, err := parse(csr)
	if err != nil {
		return controller.Decision{Err: err}
	}
	csr = csr.DeepCopy()
	if err := checkFor(csr.Spec.SignerName, request, csr.Spec.Usages); err != nil {
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue,
			Reason: "SignerValidationFailure", Message: err.Error(), LastUpdateTime: metav1.NewTime(now)})
	} else if csr.Status.Certificate, err = s.sign(request, csr.Spec, now); err != nil {
		return controller.Decision{Err: fmt.Errorf("failed to sign CertificateSigningRequest %s: %w", csr.Name, err)}
	}
	return controller.Decision{Actions: []controller.Action{controller.UpdateStatus(csr)}}
}

// sign returns the signed certificate in PEM.
func (s *signer) sign(request *x509.CertificateRequest, spec certificatesv1.CertificateSigningRequestSpec, now time.Time) ([]byte, error) {
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("unable to verify certificate request signature: %w", err)
	}
	authority, key, err := s.authority()
	if err != nil {
		return nil, err
	}
	if !now.Before(authority.NotAfter) {
		return nil, fmt.Errorf("the signing certificate authority expired at %v: renew it", authority.NotAfter)
	}
	template := &x509.Certificate{
		Subject: request.Subject, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses, EmailAddresses: request.EmailAddresses, URIs: request.URIs,
		BasicConstraintsValid: true,
	}
	if template.KeyUsage, template.ExtKeyUsage, err = x509Usages(spec.Usages); err != nil {
		return nil, err
	}
	template.NotBefore, template.NotAfter = s.validity(spec.ExpirationSeconds, now)
	if template.NotAfter.After(authority.NotAfter) {
		template.NotAfter = authority.NotAfter
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, request.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// validity returns when a certificate is valid: as long as is asked for, but no longer than the signer's duration.
func (s *signer) validity(seconds *int32, now time.Time) (from, to time.Time) {
	life := s.life
	if seconds != nil {
		life = min(life, max(time.Duration(*seconds)*time.Second, shortestLife))
	}
	back := min(backdating, life/10)
	from, to = now.Add(-back), now.Add(life)
	if life >= shortLife {
		to = to.Add(-back)
	}
	return from, to
}

func (s *signer) authority() (*x509.Certificate, crypto.Signer, error) {
	certPEM, err := os.ReadFile(s.certFile)
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(certPEM)
	if block == nil {
		return nil, nil, fmt.Errorf("%s is not in PEM", s.certFile)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.certFile, err)
	}
	keyPEM, err := os.ReadFile(s.keyFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("the key of the cluster's authority is not here, so no certificate can be signed: %w", err)
	}
	if err != nil {
		return nil, nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.keyFile, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, nil, fmt.Errorf("%s: a key of type %T cannot sign", s.keyFile, key)
	}
	return cert, signer, nil
}
