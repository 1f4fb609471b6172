// Package certificatesubjectrestriction is the admission plugin CertificateSubjectRestriction. It refuses CertificateSigningRequests for a
// client certificate of the group system:masters: no authorizer could revoke what such a certificate allows.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package certificatesubjectrestriction
