// Package alwaysadmit is the admission plugin AlwaysAdmit: it admits every write. Upstream has deprecated it, because it does nothing.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package alwaysadmit
