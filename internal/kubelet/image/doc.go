// Package image ensures that the images of containers are on the node before containers are created: it pulls them by their pull policies, with every pull
// secret that matches, backs off when pulls fail, and records Events with Kubernetes' reasons and messages.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package image
