// Package regular opens files at paths that a container may control. Opening such a path as root is dangerous: a
// FIFO would block it, a device may do something just by being opened, and a symbolic link leads wherever the container wants. So a path is
// first opened with O_PATH, which does none of that, and only a regular file is then opened for reading, by the descriptor and not by its name.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package regular
