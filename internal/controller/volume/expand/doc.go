// Package expand is the loop that tells of claims which ask for more than their volumes have, as upstream's expand controller. Volumes are expanded by
// others: a CSI driver's external-resizer, or the loop of the default class. Claims of volumes of plugins that were part of Kubernetes are annotated with
// the resizer that does it today.
//
// What differs from upstream: hostPath volumes, which upstream calls expanded without doing anything, wait like all others.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package expand
