// Package clustertrustbundleattest is the admission plugin ClusterTrustBundleAttest: only users with the verb attest on a signer may write
// the signer's ClusterTrustBundles.
//
// It must not import the API server's root package, its store, its cache or another plugin; what it shares with the other plugins for
// signers is in signerauthz.
package clustertrustbundleattest
