// Package controller is the runtime that control loops share, as kube-controller-manager's are. A loop declares what it watches, which keys a
// change concerns, and what to do about a key; the runtime does the rest: it queues and requeues keys with back-off, carries out decisions,
// waits until the informers have observed the loop's own writes, records Events, metrics and the causes of a decision in the journey.
//
// A loop is a folder beside this file. Its core is a pure function from observed state to a Decision; Loop.Reconcile reads the informers'
// caches and calls it. Loops never write to the API themselves and keep no state that could not be observed again.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package controller
