// Package apps declares the workloads of the apps group: deployments, replica sets, stateful sets, daemon sets and the
// controller revisions that remember what the latter two once were.
package apps
