package certificates_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base32"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/util/keyutil"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
	"skiff/internal/controller"
	"skiff/internal/controller/bootstrap"
	"skiff/internal/controller/certificates"
	"skiff/internal/controller/controllertest"
)

const (
	clientKubelet = certificatesv1.KubeAPIServerClientKubeletSignerName
	serving       = certificatesv1.KubeletServingSignerName
	client        = certificatesv1.KubeAPIServerClientSignerName
	joining       = "system:bootstrappers:kubeadm:default-node-token"
	admin         = "admin"
)

// fixture is a server with the loops that approve and sign.
type fixture struct {
	t         *testing.T
	server    *apitest.Server
	authority *x509.Certificate
}

func newWorld(t *testing.T, admission ...string) *fixture {
	t.Helper()
	w := &fixture{t: t, server: apitest.Start(t, apitest.WithServer(func(o *apiserver.Options) {
		o.AdvertiseAddress, o.EnableAdmission = "192.0.2.100", admission
	}))}
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	w.must(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour), KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	w.must(err)
	w.authority, err = x509.ParseCertificate(der)
	w.must(err)
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	w.must(err)
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	w.must(os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	w.must(os.WriteFile(keyFile, keyPEM, 0o600))
	controllertest.Run(t, w.server, certificates.NewApprover, func(deps controller.Deps) controller.Loop {
		deps.Config.ClusterDomain, deps.Config.APIServerHosts = "cluster.local", []string{"api.example", "192.0.2.101"}
		deps.Config.ClusterCIDRs, deps.Config.ServiceCIDRs = []string{"10.42.0.0/16"}, []string{"10.43.0.0/16"}
		return certificates.NewServingApprover(deps)
	}, certificates.NewKeyRecorder, func(deps controller.Deps) controller.Loop {
		deps.Config.SigningCertFile, deps.Config.SigningKeyFile = certFile, keyFile
		return certificates.NewSigner(deps)
	})
	w.token("abcdef", nil)
	return w
}

func (w *fixture) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// csrSpec is a request to be made.
type csrSpec struct {
	user    string
	groups  []string
	signer  string
	name    string // common name
	org     []string
	hosts   []string
	usages  []certificatesv1.KeyUsage
	seconds *int32
	key     *ecdsa.PrivateKey // a new one if nil
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// joinRequest returns the request of a machine that joins with a token.
func joinRequest(token, node string, key *ecdsa.PrivateKey) csrSpec {
	q := nodeWish("system:bootstrap:"+token, node, "system:bootstrappers", joining)
	q.key = key
	return q
}

func nodeWish(user, node string, groups ...string) csrSpec {
	return csrSpec{user: user, groups: groups, signer: clientKubelet, name: "system:node:" + node, org: []string{"system:nodes"},
		usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}}
}

func servingWish(node string, hosts ...string) csrSpec {
	q := nodeWish("system:node:"+node, node, "system:nodes")
	q.signer, q.hosts, q.usages[1] = serving, hosts, certificatesv1.UsageServerAuth
	return q
}

func (w *fixture) requests(user string, groups ...string) certificatesclient.CertificateSigningRequestInterface {
	if user == admin {
		return w.server.Client().CertificatesV1().CertificateSigningRequests()
	}
	return w.server.Remote("test", user, groups...).Kubernetes().CertificatesV1().CertificateSigningRequests()
}

// ask creates a request and returns its name.
func (w *fixture) ask(q csrSpec) string {
	w.t.Helper()
	key, err := q.key, error(nil)
	if key == nil {
		key = newKey(w.t)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: q.name, Organization: q.org}}
	for _, host := range q.hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	w.must(err)
	var csr *certificatesv1.CertificateSigningRequest
	wanted := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: q.signer, Usages: q.usages, ExpirationSeconds: q.seconds,
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
	controllertest.Eventually(w.t, func() string { // the authorizer observes new bindings a moment later
		if csr, err = w.requests(q.user, q.groups...).Create(w.t.Context(), wanted, metav1.CreateOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	return csr.Name
}

func (w *fixture) get(name string) *certificatesv1.CertificateSigningRequest {
	w.t.Helper()
	csr, err := w.requests(admin).Get(w.t.Context(), name, metav1.GetOptions{})
	w.must(err)
	return csr
}

func has(csr *certificatesv1.CertificateSigningRequest, kind certificatesv1.RequestConditionType) string {
	for _, c := range csr.Status.Conditions {
		if c.Type == kind {
			return c.Message
		}
	}
	return ""
}

// issued waits for a certificate.
func (w *fixture) issued(name string) *x509.Certificate {
	w.t.Helper()
	var csr *certificatesv1.CertificateSigningRequest
	controllertest.Eventually(w.t, func() string {
		if csr = w.get(name); len(csr.Status.Certificate) == 0 {
			return "a certificate"
		}
		return ""
	})
	block, rest := pem.Decode(csr.Status.Certificate)
	if block == nil || len(rest) > 0 {
		w.t.Fatalf("the certificate is %s", csr.Status.Certificate)
	}
	c, err := x509.ParseCertificate(block.Bytes)
	w.must(err)
	w.must(c.CheckSignatureFrom(w.authority))
	return c
}

// denied waits for a denial whose message contains a text.
func (w *fixture) denied(name, says string) {
	w.t.Helper()
	controllertest.Eventually(w.t, func() string {
		if message := has(w.get(name), certificatesv1.CertificateDenied); !strings.Contains(message, says) {
			return "a denial that says " + says + ", not " + message
		}
		return ""
	})
}

// comesToDeny waits until such requests are denied with a message that contains a text: the loop may not have observed the reason yet.
func (w *fixture) comesToDeny(q csrSpec, says string) {
	w.t.Helper()
	controllertest.Eventually(w.t, func() string {
		name := w.ask(q)
		controllertest.Eventually(w.t, func() string {
			if len(w.get(name).Status.Conditions) == 0 {
				return "a decision"
			}
			return ""
		})
		if message := has(w.get(name), certificatesv1.CertificateDenied); !strings.Contains(message, says) {
			return "a denial that says " + says + ", not " + message
		}
		return ""
	})
}

// pending checks that a request is not decided: one that is made later is.
func (w *fixture) pending(name string) {
	w.t.Helper()
	w.issued(w.ask(nodeWish("system:node:other", "other", "system:nodes")))
	if csr := w.get(name); len(csr.Status.Conditions) > 0 || len(csr.Status.Certificate) > 0 {
		w.t.Errorf("%s is decided: %+v", name, csr.Status.Conditions)
	}
}

func (w *fixture) approve(name string) {
	w.t.Helper()
	csr := w.get(name)
	csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"})
	_, err := w.requests(admin).UpdateApproval(w.t.Context(), name, csr, metav1.UpdateOptions{})
	w.must(err)
}

func (w *fixture) node(name string, ready corev1.ConditionStatus, addresses ...string) {
	w.t.Helper()
	nodes := w.server.Client().CoreV1().Nodes()
	_, err := nodes.Create(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.must(err)
	status := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}
	for _, a := range addresses {
		status.Addresses = append(status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	w.must(err)
	_, err = nodes.Patch(w.t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	w.must(err)
}

// Requests of a machine that joins with a token, and of a node that renews its certificate, are approved and signed.
func TestNodesGetCertificates(t *testing.T) {
	w := newWorld(t)
	for _, q := range []csrSpec{nodeWish("system:bootstrap:abcdef", "one", "system:bootstrappers", joining), nodeWish("system:node:one", "one", "system:nodes")} {
		c := w.issued(w.ask(q))
		if c.Subject.CommonName != "system:node:one" || !slices.Equal(c.Subject.Organization, []string{"system:nodes"}) || !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}) ||
			c.KeyUsage != x509.KeyUsageDigitalSignature || c.IsCA || len(c.DNSNames) > 0 {
			t.Errorf("for %s: %+v", q.user, c.Subject)
		}
		if life := c.NotAfter.Sub(c.NotBefore); life != 365*24*time.Hour {
			t.Errorf("it lives for %v", life)
		}
	}
}

// Requests of others than machines with a token and the node itself are left to an administrator, and so are requests for what is not a node's.
func TestOthersWait(t *testing.T) {
	w := newWorld(t)
	dns := nodeWish("system:bootstrap:abcdef", "one", "system:bootstrappers", joining)
	dns.hosts = []string{"one.example"}
	masters := nodeWish("system:bootstrap:abcdef", "one", "system:bootstrappers", joining)
	masters.org = []string{"system:masters"}
	// It may create requests, but not have them approved.
	_, err := w.server.Client().RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "asking"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:bootstrappers"}}}, metav1.CreateOptions{})
	w.must(err)
	for what, q := range map[string]csrSpec{
		"a token that is not to join with": nodeWish("system:bootstrap:abcdef", "one", "system:bootstrappers"),
		"a node for another":               nodeWish("system:node:one", "two", "system:nodes"),
		"a name beside the node's":         dns,
		"another group":                    masters,
	} {
		t.Run(what, func(t *testing.T) {
			sub := *w
			sub.t = t
			sub.pending(sub.ask(q))
		})
	}
}

// The name of a node belongs to the key of its newest certificate, whether or not the node is Ready; a machine with another key is denied and told what to do.
// The name is free again when the node is deleted.
func TestATakenName(t *testing.T) {
	w := newWorld(t)
	for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown} {
		t.Run(string(status), func(t *testing.T) {
			sub := *w
			sub.t = t
			name := "node-" + strings.ToLower(string(status))
			first, second := newKey(t), newKey(t)
			sub.issued(sub.ask(joinRequest("abcdef", name, first)))
			sub.denied(sub.ask(joinRequest("abcdef", name, nil)), "another machine is joining as node "+name) // it is no node yet
			sub.node(name, status)
			sub.denied(sub.ask(joinRequest("abcdef", name, nil)), "kubectl delete node "+name)
			sub.issued(sub.ask(joinRequest("abcdef", name, first))) // the machine lost its certificate and not its key
			sub.recorded(name, first)
			renewal := nodeWish("system:node:"+name, name, "system:nodes")
			renewal.key = second
			sub.issued(sub.ask(renewal))
			sub.recorded(name, second)
			sub.denied(sub.ask(joinRequest("abcdef", name, first)), "kubectl delete node "+name) // an old key
			sub.issued(sub.ask(joinRequest("abcdef", name, second)))
			sub.must(w.server.Client().CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}))
			sub.comesToIssue(joinRequest("abcdef", name, newKey(t)))
		})
	}
}

// A node that joined before keys were recorded, or whose certificate was not issued by a request, cannot be taken over with a token. Its key is recorded when
// it renews its certificate.
func TestAnUnrecordedNode(t *testing.T) {
	w := newWorld(t)
	w.node("old", corev1.ConditionUnknown)
	w.denied(w.ask(joinRequest("abcdef", "old", nil)), "kubectl delete node old")
	renewal := nodeWish("system:node:old", "old", "system:nodes")
	renewal.key = newKey(t)
	w.issued(w.ask(renewal))
	w.recorded("old", renewal.key)
	w.issued(w.ask(joinRequest("abcdef", "old", renewal.key)))
}

// A node cannot change which key is recorded for it, nor register with one.
func TestANodeCannotRecordAKey(t *testing.T) {
	w := newWorld(t, "NodeRestriction")
	key := newKey(t)
	w.issued(w.ask(joinRequest("abcdef", "one", key)))
	as := w.server.Remote("test", "system:node:one", "system:nodes").Kubernetes().CoreV1().Nodes()
	made := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{certificates.KeyLabel: "forged"}}}
	if _, err := as.Create(t.Context(), made, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("registering with a key: %v", err)
	}
	made.Labels = nil
	_, err := as.Create(t.Context(), made, metav1.CreateOptions{})
	w.must(err)
	w.recorded("one", key)
	for _, patch := range []string{`{"metadata":{"labels":{"` + certificates.KeyLabel + `":"forged"}}}`, `{"metadata":{"labels":{"` + certificates.KeyLabel + `":null}}}`} {
		if _, err := as.Patch(t.Context(), "one", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", patch, err)
		}
	}
}

// recorded waits until the key of a node is recorded.
func (w *fixture) recorded(name string, key *ecdsa.PrivateKey) {
	w.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	w.must(err)
	sum := sha256.Sum256(der)
	want := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
	controllertest.Eventually(w.t, func() string {
		node, err := w.server.Client().CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil || node.Labels[certificates.KeyLabel] != want {
			return "the key of the node to be recorded"
		}
		return ""
	})
}

// comesToIssue waits until such requests are approved: the loop may not have observed yet that the reason for denials is gone.
func (w *fixture) comesToIssue(q csrSpec) {
	w.t.Helper()
	controllertest.Eventually(w.t, func() string {
		name := w.ask(q)
		controllertest.Eventually(w.t, func() string {
			if len(w.get(name).Status.Conditions) == 0 {
				return "a decision"
			}
			return ""
		})
		if message := has(w.get(name), certificatesv1.CertificateDenied); message != "" {
			return "an approval, not " + message
		}
		return ""
	})
}

// Names that are invalid for nodes, or by which something else in the cluster is reached, cannot be joined under.
func TestStrangeNames(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"One", "one two", "", "one/status", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "db.shop.svc", "192.0.2.1"} {
		w.denied(w.ask(joinRequest("abcdef", name, nil)), "cannot be the name of a node")
	}
}

// A token for one machine lets one in: a machine with another key is denied, even before the first has become a node. The first machine may ask again.
func TestATokenForOneMachine(t *testing.T) {
	w := newWorld(t)
	w.token("single", map[string]string{bootstrap.UsesKey: "1"})
	w.token("before", map[string]string{"usage-skiff-single": "true"}) // as older versions wrote it
	w.token("nobody", map[string]string{bootstrap.UsesKey: "few"})
	for i, token := range []string{"single", "before"} {
		key, one, two := newKey(t), fmt.Sprint("one-", i), fmt.Sprint("two-", i)
		w.issued(w.ask(joinRequest(token, one, key)))
		w.denied(w.ask(joinRequest(token, two, nil)), one+" joined with it")
		w.denied(w.ask(joinRequest(token, two, key)), one+" joined with it")
		w.issued(w.ask(joinRequest(token, one, key)))
	}
	w.denied(w.ask(joinRequest("nobody", "three", nil)), "used up")
}

// Of machines that use one token at the same time, exactly as many join as it allows, even if the loop is restarted in between.
func TestMachinesRaceForAToken(t *testing.T) {
	w := newWorld(t)
	for token, uses := range map[string]int{"single": 1, "triple": 3} {
		w.token(token, map[string]string{bootstrap.UsesKey: strconv.Itoa(uses)})
		var mu sync.Mutex
		var names []string
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				name := w.ask(joinRequest(token, fmt.Sprint(token, "-", i), nil))
				mu.Lock()
				defer mu.Unlock()
				names = append(names, name)
			})
		}
		all.Wait()
		in := 0
		for _, name := range names {
			controllertest.Eventually(t, func() string {
				if len(w.get(name).Status.Conditions) == 0 {
					return "a decision"
				}
				return ""
			})
			if has(w.get(name), certificatesv1.CertificateApproved) != "" {
				in++
			}
		}
		if in != uses {
			t.Errorf("%d machines joined with a token for %d", in, uses)
		}
		// The uses are recorded in the Secret, so the requests may be deleted.
		for _, name := range names {
			w.must(w.requests(admin).Delete(t.Context(), name, metav1.DeleteOptions{}))
		}
		w.denied(w.ask(joinRequest(token, token+"-late", nil)), "used up")
	}
}

// A token that is deleted before a request made with it is decided lets no machine in, until it exists again.
func TestADeletedToken(t *testing.T) {
	w := newWorld(t)
	name := w.ask(nodeWish("system:bootstrap:fedcba", "one", "system:bootstrappers", joining))
	w.pending(name)
	w.token("fedcba", nil)
	w.issued(name)
}

func (w *fixture) token(id string, more map[string]string) {
	w.t.Helper()
	data := map[string]string{"token-id": id, "token-secret": "0123456789abcdef"}
	maps.Copy(data, more)
	_, err := w.server.Client().CoreV1().Secrets("kube-system").Create(w.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
		Type: corev1.SecretTypeBootstrapToken, StringData: data}, metav1.CreateOptions{})
	w.must(err)
}

// A kubelet gets a serving certificate for names and addresses that its Node has and no other.
func TestServing(t *testing.T) {
	w := newWorld(t)
	early := w.ask(servingWish("one", "one", "192.0.2.1"))
	w.node("one", corev1.ConditionTrue, "192.0.2.1", "192.0.2.100", "192.0.2.9", // 192.0.2.100 is the API's
		"127.0.0.1", "169.254.169.254", "10.43.0.1", "10.42.7.2", "192.0.2.101", "kubernetes.default.svc", "api.example")
	w.node("api.example", corev1.ConditionTrue, "192.0.2.3")
	w.node("two", corev1.ConditionTrue, "192.0.2.2", "192.0.2.9")
	c := w.issued(early)
	if !slices.Equal(c.DNSNames, []string{"one"}) || len(c.IPAddresses) != 1 || !c.IPAddresses[0].Equal(net.ParseIP("192.0.2.1")) || !slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("the certificate is for %v, %v, %v", c.DNSNames, c.IPAddresses, c.ExtKeyUsage)
	}
	w.comesToDeny(servingWish("one", "one", "192.0.2.9"), "an address of node two too")
	w.comesToDeny(servingWish("one", "192.0.2.100"), "an address of the API")
	for address, why := range map[string]string{"127.0.0.1": "no machine's own", "169.254.169.254": "no machine's own", "10.43.0.1": "of pods or services", "10.42.7.2": "of pods or services", "192.0.2.101": "of the API"} {
		w.denied(w.ask(servingWish("one", address)), why)
	}
	w.denied(w.ask(servingWish("api.example", "api.example")), "a name of the API")
	w.pending(w.ask(servingWish("one", "api.example")))
	w.pending(w.ask(servingWish("one", "one", "192.0.2.2")))
	w.pending(w.ask(servingWish("one", "kubernetes.default.svc")))
	forged := servingWish("one", "one")
	forged.user, forged.groups = "system:node:two", []string{"system:nodes"}
	w.pending(w.ask(forged))
}

// Requests that an administrator approves are signed if they are valid for the signer, for as long as is asked for.
func TestSigning(t *testing.T) {
	w := newWorld(t)
	person := csrSpec{user: admin, signer: client, name: "jane", org: []string{"team"}, usages: []certificatesv1.KeyUsage{certificatesv1.UsageClientAuth}, seconds: new(int32(3600))}
	name := w.ask(person)
	w.approve(name)
	if c := w.issued(name); c.Subject.CommonName != "jane" || time.Until(c.NotAfter).Round(time.Minute) != time.Hour || c.NotBefore.After(time.Now().Add(-4*time.Minute)) {
		t.Errorf("the certificate of %v is good from %v to %v", c.Subject, c.NotBefore, c.NotAfter)
	}
	long := person
	long.seconds = new(int32(20 * 365 * 24 * 3600))
	name = w.ask(long)
	w.approve(name)
	if life := time.Until(w.issued(name).NotAfter); life > 366*24*time.Hour {
		t.Errorf("a certificate lives for %v", life)
	}
	server := person
	server.usages = append(slices.Clone(server.usages), certificatesv1.UsageServerAuth)
	name = w.ask(server)
	w.approve(name)
	controllertest.Eventually(t, func() string {
		if has(w.get(name), certificatesv1.CertificateFailed) != "invalid usage for client certificate: server auth" {
			return "a failure that says why"
		}
		return ""
	})
	other := person
	other.signer = "example.com/signer"
	name = w.ask(other)
	w.approve(name)
	w.pending(w.ask(other))
	if csr := w.get(name); len(csr.Status.Certificate) > 0 {
		t.Error("another signer's request is signed")
	}
}
