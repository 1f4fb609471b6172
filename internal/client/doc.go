// Package client connects components to the API: it stands between every component and the API server. A Client has what client-go users
// expect: typed, dynamic and metadata clients, informer factories and event recorders.
//
// There are two ways to get one. ForConfig and ForKubeconfig speak HTTPS to a server anywhere. ForServer speaks to the server in this
// process: requests run its whole handler chain under the component's identity, but without a network, and informers are
// fed with the decoded objects of the server's cache, which all informers of the process share. As everywhere in Kubernetes, nobody may
// change an object taken from an informer. A component cannot tell which of the two it was given.
//
// Requests that a component makes because of an object name that object as their cause: see Because. The server records these causes (package
// journey), so that one can read afterwards what led to what.
//
// Components import this package and nothing that lies behind the API. It must not import any other package of skiff but journey.
package client
