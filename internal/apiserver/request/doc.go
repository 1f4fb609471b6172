// Package request reads what a request says before anything is done with it: its path and method, which make its Route (upstream: RequestInfo),
// and the parameters that lists, watches and writes share. It is the first step of a request's journey through the API server, and the only one
// that looks at paths.
//
// It must not import any other room of the API server but codec: everything else builds on it.
package request
