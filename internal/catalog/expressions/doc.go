// Package expressions compiles the CEL expressions that API objects carry: those of admission policies and the match conditions of webhooks. The catalog
// compiles them when an object is written, and the API server when it first evaluates them, so that both agree on variables, types and error texts.
//
// A Scope says which variables an expression sees. The environment of a scope is made when it is first needed and shared by all expressions; a policy that
// declares variables of its own extends it by one type.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package expressions
