// Package denyserviceexternalips is the admission plugin DenyServiceExternalIPs: nobody may give a Service external IPs that it does not have yet.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package denyserviceexternalips
