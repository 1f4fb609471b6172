// Package mutating is the admission plugin MutatingAdmissionPolicy: it changes what is created or updated as the mutations of policies in CEL say, which
// are apply configurations or JSON patches.
//
// Policies run in the order of their names, and the bindings of each in the order of theirs. When a mutation has changed the object, the chain runs a
// second time; then all policies with the reinvocation policy IfNeeded that have run do so again, also the one that made the last change.
//
// It must not import the API server's root package, its store or its cache.
package mutating
