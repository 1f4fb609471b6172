// Package matchconditions evaluates match conditions: CEL expressions that decide whether a webhook or policy concerns a request. It is what webhooks
// and policies share; the language itself is in catalog/expressions.
//
// It must not import a plugin, the API server's root package, its store or its cache.
package matchconditions
