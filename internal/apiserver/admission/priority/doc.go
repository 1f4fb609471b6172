// Package priority is the admission plugin Priority. It resolves the name of a pod's PriorityClass into the priority and preemption policy
// the scheduler works with, and refuses a second default class.
//
// It must not import the API server's root package, its store, its cache or another plugin: it reads through objects.Reader.
package priority
