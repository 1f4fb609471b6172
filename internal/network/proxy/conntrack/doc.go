// Package conntrack deletes stale conntrack entries of UDP: those that lead to endpoints which no longer exist. A UDP client that keeps sending
// from the same port is one flow, and a flow goes where its first packet went: without this, to the address of a deleted pod, or to a cluster
// IP that had no endpoints at the time.
//
// It must not import the API server, its store or its cache, nor another component: components meet only at the API, through client.
package conntrack
