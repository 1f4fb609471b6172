// Package patchlimits has the limits of JSON patches (RFC 6902), whether clients or webhooks send them.
//
// It must not import anything else of skiff.
package patchlimits
