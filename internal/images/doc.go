// Package images is the image registry inside skiff: OCI distribution on a content-addressed directory, over HTTPS on loopback for
// clients that have its password (package access makes it).
//
// It is the first mirror of every registry name, so an image that was loaded, built or pushed here is found under its usual name
// (docker.io/library/nginx) whether or not its own registry can be reached. containerd asks with the name of the registry it stands in
// for (?ns=docker.io), and goes on to that registry when the answer is 404.
//
//	<dir>/blobs/sha256/<hex>             layers, configurations and manifests, each stored once however many images share it
//	<dir>/names/<registry>/<repository>/_tags/<tag>         the digest of a tag
//	<dir>/names/<registry>/<repository>/_manifests/<hex>    manifests that were pushed by digest
//
// Several processes may use a directory at once: files are put in place by a rename, and a process that removes blobs holds the lock exclusively (lock.go).
//
// It must not import anything else of skiff: package access beside it makes the credentials.
package images
