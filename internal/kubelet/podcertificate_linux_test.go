package kubelet

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/kubelet/podcertificate/signertest"
)

// A pod waits for its certificate, as the node that it runs on asks for it, and starts as soon as it is issued; the key and the certificate are in the volume.
func TestPodCertificate(t *testing.T) {
	w := newFixture(t)
	w.stop()
	w.start(func(o *Options) { o.Volumes = nil })
	signer := signertest.New(t, w.client)
	if _, err := w.client.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const spec = `{serviceAccountName: robot, automountServiceAccountToken: false, containers: [{name: a, image: nginx, volumeMounts: [{name: v, mountPath: /v}]}], volumes: [{name: v, projected: {sources: [
		{podCertificate: {signerName: example.com/signer, keyType: ED25519, credentialBundlePath: bundle.pem}}]}}]}`
	pod := w.create("web", spec)
	w.eventually(func() string {
		if signer.Issue() == 0 {
			return fmt.Sprintf("no request: %v", w.events("web"))
		}
		return ""
	})
	w.await("web", ready)
	bundle := filepath.Join(w.dir, "kubelet", "pods", string(pod.UID), "volumes", "kubernetes.io~projected", "v", "bundle.pem")
	data, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(data, data)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := x509.ParseCertificate(pair.Certificate[0]); err != nil || c.Subject.CommonName != "web" {
		t.Errorf("the certificate of %v, %v", c.Subject, err)
	}
	refused := w.create("refused", spec)
	w.eventually(func() string {
		signer.Deny()
		if len(w.events("refused")) == 0 {
			return "no event"
		}
		return ""
	})
	w.awaitEvent("refused", `Warning Denied PodCertificateRequest default/req-`)
	w.awaitEvent("refused", `Warning FailedMount MountVolume.SetUp failed for volume "v" : PodCertificateRequest was permanently denied: reason="Test" message="says the test"`)
	for _, name := range []string{"web", "refused"} {
		w.delete(name, 0)
		w.awaitGone(name)
	}
	w.eventually(func() string {
		for _, uid := range []string{string(pod.UID), string(refused.UID)} {
			if _, err := os.Stat(filepath.Join(w.dir, "kubelet", "pods", uid)); err == nil {
				return "the directory of a pod is left"
			}
		}
		if len(w.kubelet.objects.certificates.Counts()) > 0 {
			return "certificates are remembered"
		}
		return ""
	})
}
