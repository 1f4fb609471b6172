// Package conntrack has the kernel forget flows of UDP that lead to endpoints which are gone. A sender of UDP that goes on sending from the same
// port is one flow for as long as it does, and a flow goes where its first packet went: without this, to an address where nobody is any more,
// or to a cluster IP that led nowhere at the time.
package conntrack
