// Package tokenfile authenticates the bearer tokens listed in a file.
//
// It must not import anything else of skiff but authn.
package tokenfile
