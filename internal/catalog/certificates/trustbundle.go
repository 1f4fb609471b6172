package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/signer"
)

var ClusterTrustBundle = catalog.Resource[certificatesv1.ClusterTrustBundle]{
	Group: group, Version: "v1", Kind: "ClusterTrustBundle", Plural: "clustertrustbundles", StorageVersion: "v1beta1",
	// The allowed names depend on the signer, so that Validate checks the name.
	Name:     func(string, bool) []string { return nil },
	Validate: func(b *certificatesv1.ClusterTrustBundle) field.ErrorList { return validateBundle(b, "").Errors() },
	ValidateUpdate: func(new, old *certificatesv1.ClusterTrustBundle) field.ErrorList {
		root := validateBundle(new, old.Spec.TrustBundle)
		root.Child("spec").Immutable("signerName", new.Spec.SignerName, old.Spec.SignerName)
		return root.Errors()
	},
	Fields: []catalog.Field[certificatesv1.ClusterTrustBundle]{{Name: "spec.signerName",
		Value: func(b *certificatesv1.ClusterTrustBundle) string { return b.Spec.SignerName }}},
	Columns: []catalog.Column[certificatesv1.ClusterTrustBundle]{
		catalog.NameColumn[certificatesv1.ClusterTrustBundle](),
		{Name: "SignerName", Description: certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()["signerName"],
			Cell: func(b *certificatesv1.ClusterTrustBundle, _ time.Time) any { return orNone(b.Spec.SignerName) }},
	},
	Complete: true,
}

// validateBundle validates a bundle, except for its trust anchors if they did not change.
func validateBundle(b *certificatesv1.ClusterTrustBundle, old string) *check.Part {
	root := check.At(nil)
	metadata, spec := root.Child("metadata"), root.Child("spec")
	if b.GenerateName != "" {
		for _, msg := range signer.BundleName(b.Spec.SignerName, b.GenerateName, true) {
			metadata.Invalid("generateName", b.GenerateName, msg)
		}
	}
	if b.Name != "" {
		for _, msg := range signer.BundleName(b.Spec.SignerName, b.Name, false) {
			metadata.Invalid("name", b.Name, msg)
		}
	}
	if b.Spec.SignerName != "" {
		signer.Name(spec, b.Spec.SignerName)
	}
	if old == "" || b.Spec.TrustBundle != old {
		validateAnchors(spec, b.Spec.TrustBundle)
	}
	return root
}

const maxTrustBundle = 1 << 20

func validateAnchors(spec *check.Part, text string) {
	if len(text) > maxTrustBundle {
		spec.Add(field.TooLong(spec.Path("trustBundle"), "", maxTrustBundle))
		return
	}
	wrong := false
	complain := func(detail string) {
		wrong = true
		spec.Invalid("trustBundle", "<value omitted>", detail)
	}
	var anchors []string // in order of appearance
	places := map[string][]int{}
	block, rest := pem.Decode([]byte(text))
	for i := 0; block != nil; i++ {
		if msg := anchorError(block); msg != "" {
			complain(fmt.Sprintf("entry %d %s", i, msg))
		} else {
			anchor := string(block.Bytes)
			if places[anchor] == nil {
				anchors = append(anchors, anchor)
			}
			places[anchor] = append(places[anchor], i)
		}
		block, rest = pem.Decode(rest)
	}
	if wrong {
		return
	}
	if len(anchors) == 0 {
		complain("at least one trust anchor must be provided")
	}
	for _, anchor := range anchors {
		if len(places[anchor]) > 1 {
			complain(fmt.Sprintf("duplicate trust anchor (indices %v)", places[anchor]))
		}
	}
}

func anchorError(block *pem.Block) string {
	if block.Type != certificate {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) > 0 {
		return "has PEM block headers"
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	switch {
	case err != nil:
		return "does not parse as X.509"
	case !cert.IsCA:
		return "does not have the CA bit set"
	case !cert.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
