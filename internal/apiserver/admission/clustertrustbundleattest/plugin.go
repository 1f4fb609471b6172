package clustertrustbundleattest

import (
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/signerauthz"
	"skiff/internal/apiserver/authz"
)

// New returns the plugin.
func New(authorizer authz.Authorizer) admission.Plugin {
	return signerauthz.New(authorizer, signerauthz.Check{Plugin: "ClusterTrustBundleAttest", Verb: "attest",
		Denial: "user not permitted to attest for signerName %q", Handles: handles, Signer: signer})
}

var bundles = certificatesv1.Resource("clustertrustbundles")

// handles reports whether the write creates or updates a ClusterTrustBundle.
func handles(a *admission.Attributes) bool {
	return (a.Operation == admission.Create || a.Operation == admission.Update) && a.Is(bundles)
}

// signer returns the signer of the new bundle, which an update cannot change. A bundle without a signer needs no verb.
func signer(a *admission.Attributes) (name string, needed bool, err error) {
	bundle, ok := a.Object.(*certificatesv1.ClusterTrustBundle)
	if !ok {
		return "", false, fmt.Errorf("expected type ClusterTrustBundle, got: %T", a.Object)
	}
	old, ok := a.Old.(*certificatesv1.ClusterTrustBundle)
	unchanged := ok && a.Operation == admission.Update && sameForSigner(bundle, old)
	return bundle.Spec.SignerName, bundle.Spec.SignerName != "" && !unchanged, nil
}

// sameForSigner reports whether two bundles differ only in what the garbage collector and storage migration write.
func sameForSigner(bundle, old *certificatesv1.ClusterTrustBundle) bool {
	like := bundle.DeepCopy()
	like.OwnerReferences, like.Finalizers, like.SelfLink, like.ManagedFields = old.OwnerReferences, old.Finalizers, old.SelfLink, old.ManagedFields
	return equality.Semantic.DeepEqual(like, old)
}
