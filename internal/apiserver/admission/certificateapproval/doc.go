// Package certificateapproval is the admission plugin CertificateApproval: only users with the verb approve on a
// CertificateSigningRequest's signer may approve or deny the request.
//
// It must not import the API server's root package, its store, its cache or another plugin; what it shares with the other plugins for
// signers is in signerauthz.
package certificateapproval
