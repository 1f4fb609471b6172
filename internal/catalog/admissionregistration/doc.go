// Package admissionregistration declares what takes part in admission: webhooks, and policies in CEL with their bindings. The
// expressions of both are compiled when they are written; package expressions has the language.
//
// The API server applies these declarations to every request for the group: it defaults, prepares and validates objects with
// them before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package admissionregistration
