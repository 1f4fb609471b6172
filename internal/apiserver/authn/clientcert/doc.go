// Package clientcert recognizes users by the client certificates of their connections: the subject's common name is the user, its
// organizations are the groups. The server's TLS configuration must request certificates without verifying them; they are verified here,
// where an unknown certificate does not end the connection. The result is cached for as long as the certificate and its CAs are valid and
// the CAs are trusted.
//
// It must not import the API server's root package, its store, its cache or another authenticator.
package clientcert
