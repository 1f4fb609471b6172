// Package access serves the image registry of a node to those who have its credentials, which it makes and keeps in a directory that only root may look into:
//
//	<dir>/ca.crt        the authority that signs this registry's certificate, and nothing else
//	<dir>/password      the password of user skiff
//	<dir>/config.json   both for docker, podman, skopeo and crane: a docker configuration file
//	<dir>/pki           the authority and the registry's certificate, with their keys
//
// Each node has an authority of its own. The cluster's is not used: agents do not have its key, and it has signed for 127.0.0.1 before, for every kubelet
// and API server. Whoever takes the registry's port can therefore not answer in its place.
//
// The certificate is renewed when a client connects after it is due. containerd reads the authority's certificate at every pull, so it needs no notice.
//
// It must not import the API server, its store or its cache, nor any component.
package access
