// Package ttlafterfinished deletes Jobs, with their dependents, after the spec.ttlSecondsAfterFinished that follow their end.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package ttlafterfinished
