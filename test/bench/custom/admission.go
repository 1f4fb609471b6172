package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"time"
)

const (
	configMaps   = "/api/v1/namespaces/" + namespace + "/configmaps"
	registration = "/apis/admissionregistration.k8s.io/v1/"
)

// configMap is one that the webhook and the policy select by its label, or not.
func configMap(name, label string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"bench":%q}},"data":{"max":"1000"}}`, name, label)
}

// selected is what the webhook and the policy are about: creates of config maps with the label.
func selected(label string) (rules []fields, selector fields) {
	return []fields{{"apiGroups": []string{""}, "apiVersions": []string{"v1"}, "operations": []string{"CREATE"}, "resources": []string{"configmaps"}}},
		fields{"matchLabels": fields{"bench": label}}
}

// measureWebhook compares creates that a webhook is asked about, which allows everything, with creates that it is not asked about.
func measureWebhook(ctx context.Context, c *client) error {
	url, certificate, end, err := serveWebhook()
	if err != nil {
		return err
	}
	defer end()
	if err := createNamespace(ctx, c); err != nil {
		return err
	}
	rules, selector := selected("webhook")
	if err := c.post(ctx, registration+"validatingwebhookconfigurations", fields{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
		"metadata": fields{"name": "bench"}, "webhooks": []fields{{"name": "bench.example.com", "rules": rules, "objectSelector": selector, "sideEffects": "None",
			"admissionReviewVersions": []string{"v1"}, "clientConfig": fields{"url": url, "caBundle": certificate}}}}); err != nil {
		return err
	}
	return measurePairs(ctx, c, "webhook")
}

// serveWebhook starts the webhook on loopback. It reads the review and answers with its uid.
func serveWebhook() (url string, certificate []byte, end func(), err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", nil, nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, nil, err
	}
	hook := &http.Server{Handler: http.HandlerFunc(allow), ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = hook.ServeTLS(listener, "", "")
	}()
	end = func() {
		hook.Close()
		<-ended
	}
	return "https://" + listener.Addr().String() + "/", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), end, nil
}

// refused is the name of what the webhook and the policy refuse.
const refused = "refused"

func allow(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, uid, _ := bytes.Cut(body, []byte(`"uid":"`))
	uid, _, _ = bytes.Cut(uid, []byte(`"`))
	refuse := bytes.Contains(body, []byte(`"name":"`+refused+`"`))
	w.Header().Set("Content-Type", jsonType)
	fmt.Fprintf(w, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":%q,"allowed":%t}}`, uid, !refuse)
}

// measurePolicy compares creates that a policy with many bindings is about, each with parameters of its own, with creates that it is not about.
func measurePolicy(ctx context.Context, c *client) error {
	if err := createNamespace(ctx, c); err != nil {
		return err
	}
	_, err := inParallel(*bindings, *concurrency, func(i int) error {
		name, refuse := fmt.Sprint("limit-", i), "nobody"
		if i == *bindings-1 {
			refuse = refused
		}
		if err := c.post(ctx, configMaps, fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"name": name}, "data": fields{"max": "1000", "refuse": refuse}}); err != nil {
			return err
		}
		return c.post(ctx, registration+"validatingadmissionpolicybindings", fields{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
			"metadata": fields{"name": fmt.Sprint("bench-", i)}, "spec": fields{"policyName": "bench", "validationActions": []string{"Deny"},
				"paramRef": fields{"name": name, "namespace": namespace, "parameterNotFoundAction": "Deny"}}})
	})
	if err != nil {
		return err
	}
	rules, selector := selected("policy")
	if err := c.post(ctx, registration+"validatingadmissionpolicies", fields{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": fields{"name": "bench"},
		"spec": fields{"matchConstraints": fields{"resourceRules": rules, "objectSelector": selector}, "paramKind": fields{"apiVersion": "v1", "kind": "ConfigMap"},
			"validations": []fields{{"expression": "object.data.size() < int(params.data.max) && object.metadata.name != params.data.refuse", "message": "too much"}}}}); err != nil {
		return err
	}
	return measurePairs(ctx, c, "policy")
}

// measurePairs creates config maps with and without the label in turn, one after the other, once what selects the label refuses what it should.
func measurePairs(ctx context.Context, c *client, label string) error {
	err := until(ctx, 20*time.Millisecond, func() (bool, error) {
		err := c.drain(ctx, http.MethodPost, configMaps+"?dryRun=All", configMap(refused, label))
		if response := (*refusal)(nil); errors.As(err, &response) && response.status != http.StatusConflict {
			return strings.Contains(response.text, "denied"), nil
		}
		return false, err
	})
	if err != nil {
		return err
	}
	const warm = 50
	var with, without []time.Duration
	var cpuWith, cpuWithout time.Duration
	for i := range warm + *pairs {
		tookWith, usedWith, err := timed(func() error {
			return c.drain(ctx, http.MethodPost, configMaps, configMap(fmt.Sprint(label, "-with-", i), label))
		})
		if err != nil {
			return err
		}
		tookWithout, usedWithout, err := timed(func() error {
			return c.drain(ctx, http.MethodPost, configMaps, configMap(fmt.Sprint(label, "-without-", i), "none"))
		})
		if err != nil {
			return err
		}
		if i >= warm {
			with, without = append(with, tookWith), append(without, tookWithout)
			cpuWith, cpuWithout = cpuWith+usedWith, cpuWithout+usedWithout
		}
	}
	report("without-"+label+"-p50", milliseconds(median(without)), "ms")
	report("with-"+label+"-p50", milliseconds(median(with)), "ms")
	report(label+"-adds-p50", milliseconds(median(with)-median(without)), "ms")
	if len(server) > 0 {
		report(label+"-adds-server-cpu", float64((cpuWith-cpuWithout).Nanoseconds())/1e3/float64(*pairs), "us/op")
	}
	return nil
}

// timed returns how long f took and what the server used of the processors meanwhile.
func timed(f func() error) (took, used time.Duration, err error) {
	before, err := server.cpu()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := f(); err != nil {
		return 0, 0, err
	}
	took = time.Since(start)
	after, err := server.cpu()
	return took, after - before, err
}

func (c *client) post(ctx context.Context, path string, object fields) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return c.drain(ctx, http.MethodPost, path, body)
}
