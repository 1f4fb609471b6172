// Package certificatesigning is the admission plugin CertificateSigning: only users with the verb sign on a CertificateSigningRequest's
// signer may issue its certificate or mark it as failed.
//
// It must not import the API server's root package, its store, its cache or another plugin; what it shares with the other plugins for
// signers is in signerauthz.
package certificatesigning
