// Package tunnel lets a server reach nodes that it cannot connect to, because they are behind NAT or a firewall: each agent keeps a connection to the server open,
// on which the server opens streams to the agent's kubelet, to its pods and to Services.
//
// The connection is made on the API's port as an upgrade of an HTTP request to a path of the node's own, with the node's certificate. Then HTTP/2 is spoken with
// the roles reversed: the server is the client, and a stream is a CONNECT to an address and port. What goes to a kubelet is TLS from the server to the kubelet,
// so an agent can read nothing of it.
//
// A node that has a tunnel is reached through it first. From the server, the addresses of its pods may lead elsewhere, or nowhere until a timeout; through the
// tunnel they are the node's for certain.
//
// It must not import anything else of skiff: who may open a tunnel, and what may be reached through it, is passed in.
package tunnel
