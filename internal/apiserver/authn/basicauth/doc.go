// Package basicauth recognizes users by the name and the password of HTTP basic authentication, as listed in a file. Upstream had it until
// v1.18. Nothing but TLS protects the password on its way, and each request carries it: it is for tests and for learning.
//
// It must not import anything else of skiff but authn.
package basicauth
