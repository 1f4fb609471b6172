// Package devicetainteviction is the device-taint-eviction-controller. It deletes pods that use devices with NoExecute taints that their claims do not
// tolerate, at once or when their tolerationSeconds have passed, and tells in the status of DeviceTaintRules how far that is.
//
// A device is tainted by its ResourceSlice, or by DeviceTaintRules that select it (taints.go). A pod is reconciled when it, one of its claims, the slices of
// their devices or a rule that selects them changes (keys.go). The time of an eviction follows from the objects, so that a restarted loop keeps the same
// deadlines. The key of a rule has no namespace.
//
// What differs from upstream: the status of rules is updated with an update rather than by an apply as the controller, and at once if the last update is ten
// seconds ago, where upstream's waits for ten seconds more.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package devicetainteviction
