package clustertrustbundleattest_test

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/clustertrustbundleattest"
)

func TestAttest(t *testing.T) {
	const signer = "example.com/signer"
	const refusal = `clustertrustbundles.certificates.k8s.io "b" is forbidden: user not permitted to attest for signerName "example.com/signer"`
	const (
		unsigned = `{metadata: {name: b}, spec: {trustBundle: x}}`
		plain    = `{metadata: {name: b}, spec: {signerName: example.com/signer, trustBundle: x}}`
		owned    = `{metadata: {name: b, finalizers: [example.com/f], ownerReferences: [{name: o}], managedFields: [{manager: m}]}, spec: {signerName: example.com/signer, trustBundle: x}}`
		labelled = `{metadata: {name: b, labels: {a: b}}, spec: {signerName: example.com/signer, trustBundle: x}}`
		changed  = `{metadata: {name: b}, spec: {signerName: example.com/signer, trustBundle: y}}`
	)
	for _, c := range []struct {
		name          string
		allow         admissiontest.Allow
		old, modified string
		want          string
	}{
		{"without permission, create a bundle without a signer", admissiontest.Allow{}, "", unsigned, ""},
		{"without permission, create a signer's bundle", admissiontest.Allow{}, "", plain, refusal},
		{"with attest, create a signer's bundle", admissiontest.Allow{Verb: "attest", Name: signer}, "", plain, ""},
		{"with attest for the domain, create a signer's bundle", admissiontest.Allow{Verb: "attest", Name: "example.com/*"}, "", plain, ""},
		{"with sign, create a signer's bundle", admissiontest.Allow{Verb: "sign", Name: signer}, "", plain, refusal},
		{"without permission, change the trust anchors", admissiontest.Allow{}, plain, changed, refusal},
		{"with attest, change the trust anchors", admissiontest.Allow{Verb: "attest", Name: signer}, plain, changed, ""},
		{"without permission, change the labels", admissiontest.Allow{}, plain, labelled, refusal},
		{"the garbage collector changes owner references and finalizers", admissiontest.Allow{}, plain, owned, ""},
		{"storage migration changes nothing", admissiontest.Allow{}, plain, plain, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			write := admissiontest.Create(admissiontest.Parse(t, &certificatesv1.ClusterTrustBundle{}, c.modified))
			if c.old != "" {
				write = admissiontest.Update(write.Object, admissiontest.Parse(t, &certificatesv1.ClusterTrustBundle{}, c.old))
			}
			admissiontest.Expect(t, admissiontest.Through(t, clustertrustbundleattest.New(c.allow), write), c.want)
		})
	}
}
