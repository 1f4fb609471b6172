package webhook_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"skiff/internal/apitest"
)

// answer is what a webhook answers to a request.
type answer func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

// hookServer is an HTTPS server of webhooks with a certificate of its own authority.
type hookServer struct {
	*httptest.Server
	ca   []byte
	port int32

	mu       sync.Mutex
	paths    map[string]http.HandlerFunc
	opened   map[net.Conn]bool // connections that are open
	accepted int               // connections that ever were
}

// serviceName is the name of the service by which webhooks are reached, in the namespace default.
const serviceName = "hooks"

func newHookServer(t testing.TB) *hookServer {
	t.Helper()
	s := &hookServer{paths: map[string]http.HandlerFunc{}, opened: map[net.Conn]bool{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	certificate, ca := newCertificate(t)
	s.ca = ca
	s.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Config.ConnState = s.connState
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	s.port = int32(s.Listener.Addr().(*net.TCPAddr).Port)
	return s
}

func (s *hookServer) connState(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.opened[c] = true
		s.accepted++
	case http.StateClosed, http.StateHijacked:
		delete(s.opened, c)
	}
}

// connections returns how many connections are open, and how many ever were.
func (s *hookServer) connections() (open, accepted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.opened), s.accepted
}

func (s *hookServer) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	handle := s.paths[r.URL.Path]
	s.mu.Unlock()
	if handle == nil {
		http.NotFound(w, r)
		return
	}
	handle(w, r)
}

// raw serves a path.
func (s *hookServer) raw(path string, handle http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths[path] = handle
}

// review serves a path with a proper webhook.
func (s *hookServer) review(path string, answer answer) {
	s.raw(path, func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Response = answer(review.Request)
		review.Response.UID = review.Request.UID
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&review)
	})
}

func newCertificate(t testing.TB) (tls.Certificate, []byte) {
	t.Helper()
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	authority := template(1, "webhook authority")
	authority.IsCA, authority.BasicConstraintsValid, authority.KeyUsage = true, true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, authority, authority, caKey.Public(), caKey)
	check(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	serving := template(2, "webhook")
	serving.DNSNames, serving.IPAddresses = []string{serviceName + ".default.svc"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	serving.KeyUsage, serving.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(rand.Reader, serving, authority, key.Public(), caKey)
	check(err)
	var ca bytes.Buffer
	check(pem.Encode(&ca, &pem.Block{Type: "CERTIFICATE", Bytes: caDER}))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca.Bytes()
}

// cluster is an API server with a webhook server.
type cluster struct {
	t testing.TB
	*apitest.Server
	hooks *hookServer
	api   kubernetes.Interface
	count int // of the markers that were waited for
}

func newCluster(t testing.TB, opts ...apitest.Option) *cluster {
	t.Helper()
	hooks := newHookServer(t)
	c := &cluster{t: t, hooks: hooks, Server: apitest.Start(t, opts...)}
	c.api = c.Client()
	_, err := c.api.CoreV1().Services("default").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: serviceName},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}, metav1.CreateOptions{})
	c.must(err)
	hooks.review("/marker", deny("marker"))
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// byURL and byService are the two ways to a path of the webhook server.
func (c *cluster) byURL(path string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:" + strconv.Itoa(int(c.hooks.port)) + path), CABundle: c.hooks.ca}
}

func (c *cluster) byService(path string) admissionregistrationv1.WebhookClientConfig {
	return admissionregistrationv1.WebhookClientConfig{CABundle: c.hooks.ca,
		Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: serviceName, Port: &c.hooks.port, Path: &path}}
}

// rule selects all operations on a resource, with its subresource after a slash.
func rule(group, version, resource string, operations ...admissionregistrationv1.OperationType) admissionregistrationv1.RuleWithOperations {
	if len(operations) == 0 {
		operations = []admissionregistrationv1.OperationType{"*"}
	}
	return admissionregistrationv1.RuleWithOperations{Operations: operations,
		Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}}}
}

type mutatingHook = admissionregistrationv1.MutatingWebhook
type validatingHook = admissionregistrationv1.ValidatingWebhook

// validating registers validating webhooks, and waits until they are called.
func (c *cluster) validating(name string, hooks ...validatingHook) {
	c.t.Helper()
	for i := range hooks {
		h := &hooks[i]
		complete(&h.Name, &h.SideEffects, &h.AdmissionReviewVersions)
	}
	marker, namespace := c.marker()
	hooks = append(hooks, validatingHook{Name: "marker.example.com", ClientConfig: marker.ClientConfig, Rules: marker.Rules, NamespaceSelector: marker.NamespaceSelector,
		SideEffects: marker.SideEffects, AdmissionReviewVersions: marker.AdmissionReviewVersions})
	_, err := c.api.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(c.t.Context(),
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: hooks}, metav1.CreateOptions{})
	c.must(err)
	c.waitFor(namespace)
}

// mutating registers mutating webhooks, and waits until they are called.
func (c *cluster) mutating(name string, hooks ...mutatingHook) {
	c.t.Helper()
	for i := range hooks {
		h := &hooks[i]
		complete(&h.Name, &h.SideEffects, &h.AdmissionReviewVersions)
	}
	marker, namespace := c.marker()
	_, err := c.api.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(c.t.Context(),
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: append(hooks, marker)}, metav1.CreateOptions{})
	c.must(err)
	c.waitFor(namespace)
}

func complete(name *string, effects **admissionregistrationv1.SideEffectClass, versions *[]string) {
	if *name == "" {
		*name = "hook.example.com"
	}
	if *effects == nil {
		*effects = ptr.To(admissionregistrationv1.SideEffectClassNone)
	}
	if *versions == nil {
		*versions = []string{"v1", "v1beta1"}
	}
}

// marker returns a webhook that refuses configmaps in a namespace of its own: when it does, its configuration is in effect.
func (c *cluster) marker() (mutatingHook, string) {
	c.t.Helper()
	c.count++
	namespace := "marker-" + strconv.Itoa(c.count)
	_, err := c.api.CoreV1().Namespaces().Create(c.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"marker": namespace}}}, metav1.CreateOptions{})
	c.must(err)
	return mutatingHook{Name: "marker.example.com", ClientConfig: c.byURL("/marker"), Rules: []admissionregistrationv1.RuleWithOperations{rule("", "v1", "configmaps")},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"marker": namespace}},
		SideEffects:       ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}}, namespace
}

// waitFor waits until the marker of a namespace refuses configmaps.
func (c *cluster) waitFor(namespace string) {
	c.t.Helper()
	c.eventually(func() bool {
		_, err := c.api.CoreV1().ConfigMaps(namespace).Create(c.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "marker-"}}, metav1.CreateOptions{})
		return err != nil && strings.Contains(err.Error(), `"marker.example.com" denied the request`) // and not by another webhook
	})
}

// eventually waits until a condition holds.
func (c *cluster) eventually(condition func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			c.t.Fatal("the condition did not hold within 10 s")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// allow and deny are answers.
func allow(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

func deny(message string) answer {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: message}}
	}
}

// patch answers with a JSON patch.
func patch(operations string) answer {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		kind := admissionv1.PatchTypeJSONPatch
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: &kind}
	}
}

// expect fails the test unless the error has the wanted text; an empty text wants none.
func (c *cluster) expect(err error, want string) {
	c.t.Helper()
	switch {
	case err == nil && want != "":
		c.t.Errorf("no error, want %s", want)
	case err != nil && err.Error() != want:
		c.t.Errorf("got  %v\nwant %s", err, want)
	}
}

// newCA returns an authority that has signed nothing.
func newCA(t testing.TB) []byte {
	_, ca := newCertificate(t)
	return ca
}
