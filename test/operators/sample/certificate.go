package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ensureCertificate returns the certificate of the webhooks and its PEM. Whichever pod of the operator is first makes it and keeps it in a Secret.
func ensureCertificate(ctx context.Context, c client.Client, namespace, name string) (tls.Certificate, []byte, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		if secret, err = newCertificate(namespace, name); err == nil {
			err = c.Create(ctx, secret)
		}
		if apierrors.IsAlreadyExists(err) {
			err = c.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		}
	}
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("failed to get or make secret %s of the webhooks: %w", name, err)
	}
	certificate, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	return certificate, secret.Data[corev1.TLSCertKey], err
}

// newCertificate returns a Secret with a new certificate of a Service, signed by itself.
func newCertificate(namespace, name string) (*corev1.Secret, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	host := name + "." + namespace + ".svc"
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	}}, nil
}

// publishCertificate has the API server trust the certificate when it calls the webhooks, and call the operator to convert Sites.
func publishCertificate(ctx context.Context, c client.Client, namespace, name string, bundle []byte) error {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: sites.String()}}
	for _, change := range []struct {
		object client.Object
		apply  func()
	}{
		{mutating, func() {
			for i := range mutating.Webhooks {
				mutating.Webhooks[i].ClientConfig.CABundle = bytes.Clone(bundle)
			}
		}},
		{validating, func() {
			for i := range validating.Webhooks {
				validating.Webhooks[i].ClientConfig.CABundle = bytes.Clone(bundle)
			}
		}},
		{definition, func() {
			path := "/convert"
			definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1"}, ClientConfig: &apiextensionsv1.WebhookClientConfig{CABundle: bundle,
					Service: &apiextensionsv1.ServiceReference{Namespace: namespace, Name: name, Path: &path}}}}
		}},
	} {
		if err := c.Get(ctx, client.ObjectKeyFromObject(change.object), change.object); err != nil {
			return fmt.Errorf("failed to read %T %s: %w", change.object, change.object.GetName(), err)
		}
		before := change.object.DeepCopyObject().(client.Object)
		change.apply()
		if err := c.Patch(ctx, change.object, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("failed to write %T %s: %w", change.object, change.object.GetName(), err)
		}
	}
	return nil
}
