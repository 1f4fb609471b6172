// Package clustertrustbundleattest lets only those write a signer's ClusterTrustBundle who may attest for the signer.
package clustertrustbundleattest

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/signerauthz"
	"skiff/internal/apiserver/authz"
)

// New returns the plugin. The authorizer is asked for the verb attest on the signer.
func New(authorizer authz.Authorizer) admission.Plugin { return &plugin{authorizer} }

type plugin struct{ authorizer authz.Authorizer }

var bundles = certificatesv1.Resource("clustertrustbundles")

func (*plugin) Name() string { return "ClusterTrustBundleAttest" }

// Handles creates and updates of clustertrustbundles.
func (*plugin) Handles(a *admission.Attributes) bool {
	return (a.Operation == admission.Create || a.Operation == admission.Update) && a.Is(bundles)
}

// Validate goes by the signer of the new bundle, which an update cannot change. A bundle without a signer is anybody's who may write it.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	bundle, ok := a.Object.(*certificatesv1.ClusterTrustBundle)
	if !ok {
		return a.Forbidden(fmt.Errorf("expected type ClusterTrustBundle, got: %T", a.Object))
	}
	if bundle.Spec.SignerName == "" {
		return nil
	}
	if old, ok := a.Old.(*certificatesv1.ClusterTrustBundle); ok && a.Operation == admission.Update && sameForSigner(bundle, old) {
		return nil
	}
	if !signerauthz.Allowed(ctx, p.authorizer, a.User, "attest", bundle.Spec.SignerName) {
		return a.Forbidden(fmt.Errorf("user not permitted to attest for signerName %q", bundle.Spec.SignerName))
	}
	return nil
}

// sameForSigner reports whether only that differs which the garbage collector and storage migration write.
func sameForSigner(bundle, old *certificatesv1.ClusterTrustBundle) bool {
	like := bundle.DeepCopy()
	like.OwnerReferences, like.Finalizers, like.SelfLink, like.ManagedFields = old.OwnerReferences, old.Finalizers, old.SelfLink, old.ManagedFields
	return equality.Semantic.DeepEqual(like, old)
}
