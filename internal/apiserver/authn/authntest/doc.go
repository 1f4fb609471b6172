// Package authntest is the test suite that every authenticator must pass, and helpers that make certificates and requests for it.
//
// It must not import an authenticator: their tests import it.
package authntest
