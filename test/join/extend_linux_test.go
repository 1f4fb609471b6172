package join

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

// extends has the API extended by a pod of the node, as a Service: the server reaches an aggregated API server and an admission webhook through the tunnel alone.
func (w *fixture) extends(t *testing.T) {
	certificate, key := selfSigned(t, "extension.default.svc")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "extension", Labels: map[string]string{"app": "extension"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Image: "skiff.internal/testserver", ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"--tls", ":8443"},
		Env:            []corev1.EnvVar{{Name: "TLS_CERT", Value: certificate}, {Name: "TLS_KEY", Value: key}},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8443), Scheme: corev1.URISchemeHTTPS}}, PeriodSeconds: 1},
	}}}}
	_, err := w.api.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	_, err = w.api.CoreV1().Services("default").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "extension"},
		Spec: corev1.ServiceSpec{Selector: pod.Labels, Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(8443)}}}}, metav1.CreateOptions{})
	must(t, err)

	const group = "extension.example.com"
	body, err := json.Marshal(apiregistrationv1.APIService{TypeMeta: metav1.TypeMeta{Kind: "APIService", APIVersion: "apiregistration.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{Name: "v1." + group},
		Spec: apiregistrationv1.APIServiceSpec{Group: group, Version: "v1", GroupPriorityMinimum: 100, VersionPriority: 100, CABundle: []byte(certificate),
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "extension"}}})
	must(t, err)
	rest := w.api.CoreV1().RESTClient()
	must(t, rest.Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").SetHeader("Content-Type", "application/json").Body(body).Do(t.Context()).Error())
	path := "/apis/" + group + "/v1/things"
	w.await(t, "the aggregated API server to be reached through the tunnel", func(ctx context.Context) bool {
		got, err := rest.Get().AbsPath(path).DoRaw(ctx)
		return err == nil && strings.Contains(string(got), fmt.Sprintf(`"hostname":"extension","path":%q,"user":"kubernetes-admin"`, path))
	})
	w.refusesByWebhook(t, certificate)
	must(t, rest.Delete().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/v1."+group).Do(t.Context()).Error())
}

// refusesByWebhook has the pod refuse a ConfigMap.
func (w *fixture) refusesByWebhook(t *testing.T, certificate string) {
	webhooks := w.api.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := webhooks.Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "extension"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "refuses.extension.example.com", SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"refuse": "me"}},
			Rules: []admissionregistrationv1.RuleWithOperations{{Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: []byte(certificate),
				Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "extension", Path: ptr.To("/review")}}}}}, metav1.CreateOptions{})
	must(t, err)
	w.await(t, "the admission webhook to refuse through the tunnel", func(ctx context.Context) bool {
		_, err := w.api.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "refused-", Labels: map[string]string{"refuse": "me"}}}, metav1.CreateOptions{})
		return err != nil && strings.Contains(err.Error(), "denied the request: refused by extension")
	})
	must(t, webhooks.Delete(t.Context(), "extension", metav1.DeleteOptions{}))
}

// selfSigned returns a certificate for a host, which is its own authority, and its key.
func selfSigned(t *testing.T, host string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}
