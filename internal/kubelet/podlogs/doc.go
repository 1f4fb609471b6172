// Package podlogs keeps the log files of containers: it says where they are, rotates those that are full, compresses and removes old ones, and keeps the links
// that log collectors follow.
//
// The container runtime writes the files; the kubelet tells it where (PodDir) when a container is created. Package server reads them for kubectl logs.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package podlogs
