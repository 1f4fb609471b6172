package identity_test

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"skiff/internal/cluster"
)

// withSigner adds the controllers that approve and sign certificates.
func withSigner(config *cluster.Config) {
	config.Controllers = append(config.Controllers, "certificatesigningrequest-approving-controller", "certificatesigningrequest-signing-controller")
}

// accountWith creates a service account with a role of the rules, and returns its client and its user name.
func accountWith(t *testing.T, dataDir, name string, rules ...rbacv1.PolicyRule) (kubernetes.Interface, string) {
	t.Helper()
	config := configOf(t, dataDir, "admin")
	admin := clientOf(t, config)
	newAccount(t, admin, "default", name)
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, withToken(config, token.Status.Token))
	return client, "system:serviceaccount:default:" + name
}

// certificateRights returns the rights to create and read CertificateSigningRequests and to update their approval.
func certificateRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests"}, Verbs: []string{"create", "get"}},
		{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"certificatesigningrequests/approval"}, Verbs: []string{"update", "patch"}},
	}
}

func signingRequest(t *testing.T, signer, user string, groups ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: groups}}, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: user}, Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer,
		Usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
}

func approved(csr *certificatesv1.CertificateSigningRequest) *certificatesv1.CertificateSigningRequest {
	csr = csr.DeepCopy()
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"}}
	return csr
}

// forbids retries a write until the server has observed the rights of its author, and fails the test unless it is then refused with the message.
func forbids(t *testing.T, message string, try func() error) {
	t.Helper()
	wait(t, message, func() error {
		err := try()
		if err == nil {
			t.Fatalf("it was done, and not refused with %s", message)
		}
		if !apierrors.IsForbidden(err) || err.Error() != message {
			return err
		}
		return nil
	})
}

// TestAnApproverDoesNotBecomeMaster: the rights to create CertificateSigningRequests and to update their approval are not enough to have a certificate signed, and
// no right is enough to have one of system:masters signed.
func TestAnApproverDoesNotBecomeMaster(t *testing.T) {
	data := startCluster(t, withSigner)
	client, _ := accountWith(t, data, "approver", certificateRights()...)
	requests := client.CertificatesV1().CertificateSigningRequests()
	const signer = certificatesv1.KubeAPIServerClientSignerName

	forbids(t, `certificatesigningrequests.certificates.k8s.io "master" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed`, func() error {
		_, err := requests.Create(t.Context(), signingRequest(t, signer, "master", "system:masters"), metav1.CreateOptions{})
		return err
	})
	csr, err := requests.Create(t.Context(), signingRequest(t, signer, "jane", "team"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const refusal = `certificatesigningrequests.certificates.k8s.io "jane" is forbidden: user not permitted to approve requests with signerName "kubernetes.io/kube-apiserver-client"`
	for _, options := range []metav1.UpdateOptions{{}, {DryRun: []string{metav1.DryRunAll}}} {
		forbids(t, refusal, func() error {
			_, err := requests.UpdateApproval(t.Context(), csr.Name, approved(csr), options)
			return err
		})
	}
	forbids(t, refusal, func() error {
		patch := `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Test"}]}}`
		_, err := requests.Patch(t.Context(), csr.Name, "application/merge-patch+json", []byte(patch), metav1.PatchOptions{}, "approval")
		return err
	})

	// The right to approve for the signer is what was missing.
	admin := clientOf(t, configOf(t, data, "admin"))
	role, err := admin.RbacV1().ClusterRoles().Get(t.Context(), "approver", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Resources: []string{"signers"}, ResourceNames: []string{"kubernetes.io/*"}, Verbs: []string{"approve"}})
	if _, err := admin.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "an approval", func() error {
		_, err := requests.UpdateApproval(t.Context(), csr.Name, approved(csr), metav1.UpdateOptions{})
		return err
	})
	wait(t, "a certificate", func() error {
		if csr, err = requests.Get(t.Context(), csr.Name, metav1.GetOptions{}); err == nil && len(csr.Status.Certificate) == 0 {
			err = fmt.Errorf("the request has %+v", csr.Status)
		}
		return err
	})
}

// TestSignerRefusesMasters: without the admission plugins the signer itself marks a request for system:masters as failed, with the reason.
func TestSignerRefusesMasters(t *testing.T) {
	data := startCluster(t, func(config *cluster.Config) {
		withSigner(config)
		config.DisableAdmission = []string{"CertificateSubjectRestriction", "CertificateApproval"}
	})
	requests := clientOf(t, configOf(t, data, "admin")).CertificatesV1().CertificateSigningRequests()
	csr, err := requests.Create(t.Context(), signingRequest(t, certificatesv1.KubeAPIServerClientSignerName, "master", "team", "system:masters"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := requests.UpdateApproval(t.Context(), csr.Name, approved(csr), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "a failure", func() error {
		csr, err := requests.Get(t.Context(), csr.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(csr.Status.Certificate) > 0 {
			t.Fatal("a certificate of system:masters was signed")
		}
		for _, c := range csr.Status.Conditions {
			if c.Type == certificatesv1.CertificateFailed && c.Reason == "SignerValidationFailure" &&
				strings.HasPrefix(c.Message, "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed") {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", csr.Status.Conditions)
	})
}

// TestSignersRights: writing the status of requests, or trust bundles, also needs the right to sign or to attest for the signer.
func TestSignersRights(t *testing.T) {
	data := startCluster(t, nil)
	admin := clientOf(t, configOf(t, data, "admin"))
	client, user := accountWith(t, data, "writer", rbacv1.PolicyRule{APIGroups: []string{"certificates.k8s.io"}, Verbs: []string{"create", "update", "patch"},
		Resources: []string{"certificatesigningrequests/status", "podcertificaterequests/status", "clustertrustbundles"}})
	csr, err := admin.CertificatesV1().CertificateSigningRequests().Create(t.Context(), signingRequest(t, "example.com/signer", "jane"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	authority := clusterCA(t, data, "ca")
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.cert.Raw})
	csr.Status.Certificate = chain
	forbids(t, `certificatesigningrequests.certificates.k8s.io "jane" is forbidden: user not permitted to sign requests with signerName "example.com/signer"`, func() error {
		_, err := client.CertificatesV1().CertificateSigningRequests().UpdateStatus(t.Context(), csr, metav1.UpdateOptions{})
		return err
	})
	bundle := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "example.com:signer:one"},
		Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "example.com/signer", TrustBundle: string(chain)}}
	forbids(t, `clustertrustbundles.certificates.k8s.io "example.com:signer:one" is forbidden: user not permitted to attest for signerName "example.com/signer"`, func() error {
		_, err := client.CertificatesV1().ClusterTrustBundles().Create(t.Context(), bundle, metav1.CreateOptions{})
		return err
	})
	request := podCertificateRequest(t)
	if request, err = admin.CertificatesV1().PodCertificateRequests("default").Create(t.Context(), request, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	request.Status.Conditions = []metav1.Condition{{Type: certificatesv1.PodCertificateRequestConditionTypeDenied, Status: metav1.ConditionTrue, Reason: "Test", Message: "no", LastTransitionTime: metav1.Now()}}
	wait(t, "a refusal", func() error {
		_, err := client.CertificatesV1().PodCertificateRequests("default").UpdateStatus(t.Context(), request, metav1.UpdateOptions{})
		if err == nil {
			t.Fatal("it was done")
		}
		want := fmt.Sprintf(`PodCertificateRequest.certificates.k8s.io "p" is invalid: spec.signerName: Forbidden: User %q is not permitted to "sign" for signer "example.com/signer"`, user)
		if !apierrors.IsInvalid(err) || err.Error() != want {
			return err
		}
		return nil
	})
	if _, err := admin.CertificatesV1().PodCertificateRequests("default").UpdateStatus(t.Context(), request, metav1.UpdateOptions{}); err != nil {
		t.Errorf("by who may sign: %v", err)
	}
}

func podCertificateRequest(t *testing.T) *certificatesv1.PodCertificateRequest {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, newKey(t))
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: certificatesv1.PodCertificateRequestSpec{SignerName: "example.com/signer",
		PodName: "pod", PodUID: "1", ServiceAccountName: "default", ServiceAccountUID: "2", NodeName: "node", NodeUID: "3", StubPKCS10Request: der}}
}
