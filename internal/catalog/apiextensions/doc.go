// Package apiextensions declares custom resource definitions: what a definition may say of names, versions, schemas, CEL rules
// and conversion, and which names and conditions the server gives it (Decide). It does not serve custom resources.
//
// The API server applies the declaration to every request for the group: it defaults, prepares and validates objects with
// it before they are stored. The loop that serves definitions asks Decide.
//
// A definition is validated in upstream's internal form, into which k8s.io/apiextensions-apiserver converts it: what all versions share
// is one field there, and errors name that field. Schemas, defaults and CEL expressions are judged by that module's own packages.
// An update may keep what its rules forbid by now: whether the old object broke a rule is computed when the new one breaks it.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package apiextensions
