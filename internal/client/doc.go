// Package client is how components reach the API. A Client has what client-go users expect: typed, dynamic and metadata clients,
// informer factories and event recorders.
//
// There are two ways to get one. ForConfig and ForKubeconfig speak HTTPS to a server anywhere. ForServer speaks to the server in this
// process: requests run its whole handler chain under the component's own identity, but with no network in between, and informers are
// fed with the decoded objects of the server's cache, which all informers of the process share. As everywhere in Kubernetes, nobody may
// change an object taken from an informer. A component cannot tell which way it was given.
//
// Whatever a component does because of an object names that object as its cause: see Because. The server keeps these causes (package
// journey), so that one can read afterwards what led to what.
//
// Components import this package and nothing that lies behind the API.
package client
