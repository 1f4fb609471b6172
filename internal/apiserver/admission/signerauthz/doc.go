// Package signerauthz asks the authorizer what a user may do with a certificate signer. Signers are no objects: the verbs approve, sign and
// attest are granted on the resource signers of the group certificates.k8s.io, by the signer's name. New makes an admission plugin of such
// a check: certificateapproval, certificatesigning and clustertrustbundleattest are three of them.
//
// It must not import the API server's root package, its store, its cache or a plugin.
package signerauthz
