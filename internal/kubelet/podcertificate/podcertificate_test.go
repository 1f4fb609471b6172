package podcertificate

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/apitest"
	"skiff/internal/kubelet/podcertificate/signertest"
)

var began = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func request(kind string, refreshAt, notAfter time.Duration) *certificatesv1.PodCertificateRequest {
	r := &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "req-1", CreationTimestamp: metav1.NewTime(began)}}
	if kind != "" {
		r.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionTrue, Reason: "Because", Message: "of this"}}
	}
	if kind == certificatesv1.PodCertificateRequestConditionTypeIssued {
		r.Status.CertificateChain = "a comment\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: []byte("one")})) + "another"
		r.Status.BeginRefreshAt, r.Status.NotAfter = new(metav1.NewTime(began.Add(refreshAt))), new(metav1.NewTime(began.Add(notAfter)))
	}
	return r
}

// A certificate from the first request until it expires, by what is observed at which time.
func TestStates(t *testing.T) {
	issued, denied, failed := certificatesv1.PodCertificateRequestConditionTypeIssued, certificatesv1.PodCertificateRequestConditionTypeDenied, certificatesv1.PodCertificateRequestConditionTypeFailed
	type step struct {
		at     time.Duration
		sees   *certificatesv1.PodCertificateRequest
		ask    bool
		name   string
		events string
	}
	for story, steps := range map[string][]step{
		"issued and renewed": {
			{0, nil, true, "not_yet_issued", ""},
			{time.Second, nil, false, "not_yet_issued", ""},
			{time.Minute, request("", 0, 0), false, "not_yet_issued", ""},
			{2 * time.Minute, request(issued, time.Hour, 2*time.Hour), false, "fresh", ""},
			{60 * time.Minute, nil, false, "fresh", ""},
			{61 * time.Minute, nil, true, "fresh", ""},
			{62 * time.Minute, request("", 0, 0), false, "fresh", ""},
			{63 * time.Minute, request(issued, 3*time.Hour, 4*time.Hour), false, "fresh", ""},
			{150 * time.Minute, nil, false, "fresh", ""},
		},
		"not renewed": {
			{0, nil, true, "not_yet_issued", ""},
			{time.Minute, request(issued, time.Hour, 2*time.Hour), false, "fresh", ""},
			{61 * time.Minute, nil, true, "fresh", ""},
			{72 * time.Minute, request("", 0, 0), false, "overdue_for_refresh", "CertificateOverdueForRefresh: PodCertificate refresh overdue"},
			{73 * time.Minute, request("", 0, 0), false, "overdue_for_refresh", ""},
			{121 * time.Minute, request("", 0, 0), false, "expired", "CertificateExpired: PodCertificate expired"},
			{122 * time.Minute, request("", 0, 0), false, "expired", ""},
		},
		"the request was deleted": {
			{0, nil, true, "not_yet_issued", ""},
			{10 * time.Minute, nil, false, "not_yet_issued", ""},
			{12 * time.Minute, nil, true, "not_yet_issued", ""},
		},
		"denied": {
			{0, nil, true, "not_yet_issued", ""},
			{time.Minute, request(denied, 0, 0), false, "denied", `Denied: PodCertificateRequest n/req-1 was denied, reason="Because", message="of this"`},
			{time.Hour, nil, false, "denied", ""},
		},
		"failed when it was to be renewed": {
			{0, nil, true, "not_yet_issued", ""},
			{time.Minute, request(issued, time.Hour, 2*time.Hour), false, "fresh", ""},
			{61 * time.Minute, nil, true, "fresh", ""},
			{62 * time.Minute, request(failed, 0, 0), false, "failed", `Failed: PodCertificateRequest n/req-1 failed, reason="Because", message="of this"`},
			{10 * time.Hour, nil, false, "failed", ""},
		},
	} {
		var s state
		for i, step := range steps {
			now := began.Add(step.at)
			ask, events := s.observe(step.sees, now, time.Minute)
			if ask {
				r := request("", 0, 0)
				r.CreationTimestamp = metav1.NewTime(now)
				s.asked(r, []byte("key"), time.Minute)
			}
			var told []string
			for _, e := range events {
				told = append(told, e.reason+": "+e.message)
			}
			if got := strings.Join(told, ", "); ask != step.ask || s.name(now) != step.name || got != step.events {
				t.Errorf("%s, step %d: asks %v, is %s, says %q; want %+v", story, i, ask, s.name(now), got, step)
			}
			_, chain, err := s.shown()
			if want := "-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n"; err == nil && string(chain) != want {
				t.Errorf("%s, step %d: shows %s", story, i, chain)
			}
		}
	}
}

func TestKeys(t *testing.T) {
	for _, kind := range []string{"RSA3072", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"} {
		keyPEM, proof, err := newKey(kind)
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(keyPEM)
		if _, err := x509.ParsePKCS8PrivateKey(block.Bytes); err != nil || block.Type != "PRIVATE KEY" {
			t.Errorf("%s: %s, %v", kind, block.Type, err)
		}
		parsed, err := x509.ParseCertificateRequest(proof)
		if err == nil {
			err = parsed.CheckSignature()
		}
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if _, _, err := newKey("DSA"); err == nil || !strings.Contains(err.Error(), `unknown key type "DSA"`) {
		t.Error(err)
	}
}

// A pod's certificate is asked for, waited for, shown with its key, and renewed with another key; the manager watches nothing before.
func TestManager(t *testing.T) {
	server := apitest.Start(t)
	core := server.Client().CoreV1()
	node, err := core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	account, err := core.ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "4ad5b8b1-0d80-4a0b-9c3d-0d1c1a3e9d3a"}, Spec: corev1.PodSpec{ServiceAccountName: "robot"}}
	spec := &corev1.PodCertificateProjection{SignerName: "example.com/signer", KeyType: "ECDSAP256", MaxExpirationSeconds: new(int32(86400)), UserAnnotations: map[string]string{"example.com/path": "/a"}}
	clock := clocktesting.NewFakePassiveClock(time.Now())
	var mu sync.Mutex
	woken := map[types.UID]int{}
	recorder := record.NewFakeRecorder(10)
	m := New(Options{Client: server.InProcess("kubelet", "system:kube-controller-manager", "system:masters"), NodeName: "node", Node: func() *corev1.Node { return node }, Clock: clock, Log: slog.New(slog.DiscardHandler),
		Recorder: func() record.EventRecorder { return recorder }, Wake: func(uid types.UID) { mu.Lock(); woken[uid]++; mu.Unlock() }})
	defer m.Close()
	if m.lister != nil {
		t.Error("it watches before a pod needs it")
	}
	shown := func() (tls.Certificate, error) {
		key, chain, err := m.Certificate(context.Background(), pod, "v", 0, spec)
		if err != nil {
			return tls.Certificate{}, err
		}
		return tls.X509KeyPair(chain, key)
	}
	s := signertest.New(t, server.Client())
	if _, err := shown(); !Waiting(err) {
		t.Fatal(err)
	}
	list, err := server.Client().CertificatesV1().PodCertificateRequests("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatal(len(list.Items), err)
	}
	r := list.Items[0]
	if r.Spec.PodUID != pod.UID || r.Spec.NodeUID != node.UID || r.Spec.ServiceAccountUID != account.UID || *r.Spec.MaxExpirationSeconds != 86400 || r.Spec.UnverifiedUserAnnotations["example.com/path"] != "/a" ||
		!strings.HasPrefix(r.Name, "req-") || len(r.OwnerReferences) != 1 || r.OwnerReferences[0].UID != pod.UID {
		t.Errorf("the request is %+v", r)
	}
	eventually := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("never: " + what)
			}
		}
	}
	eventually("it is observed", func() bool { mu.Lock(); defer mu.Unlock(); return woken[pod.UID] > 0 })
	s.Issue()
	var first tls.Certificate
	eventually("the first certificate", func() bool { first, err = shown(); return err == nil })
	if counts := fmt.Sprint(m.Counts()); counts != "map[{example.com/signer fresh}:1]" {
		t.Error(counts)
	}
	clock.SetTime(time.Now().Add(12*time.Hour + maxJitter))
	again, err := shown() // asks for another, and shows the first meanwhile
	if err != nil || !slices.Equal(again.Certificate[0], first.Certificate[0]) {
		t.Fatal(err)
	}
	if n := s.Issue(); n != 1 {
		t.Errorf("%d requests", n)
	}
	eventually("the second certificate", func() bool {
		again, err = shown()
		return err == nil && !slices.Equal(again.Certificate[0], first.Certificate[0])
	})
	if first.PrivateKey.(*ecdsa.PrivateKey).Equal(again.PrivateKey) {
		t.Error("it was renewed with the same key")
	}
	m.Forget(pod.UID)
	if len(m.Counts()) > 0 {
		t.Error("the pod is not forgotten")
	}
}
