// Package tunnel lets a server reach nodes that it cannot connect to, because they are behind NAT or a firewall: each agent keeps a connection
// to the server open, on which the server opens streams to the agent's kubelet, to its pods and to services.
//
// The connection is made on the API's port as an upgrade of an HTTP request to a path of the node's own, with the node's certificate. After it HTTP/2 is
// spoken with the roles reversed: the server is the client, and a stream is a CONNECT to an address and port. What goes through
// to a kubelet is TLS from the server's end to the kubelet's, so whoever holds a tunnel gains nothing by it.
//
// A node that has a tunnel is reached through it first. The addresses of its pods may lead elsewhere from where the server stands, or to nowhere until a timeout;
// through the tunnel they are the node's for certain.
package tunnel
