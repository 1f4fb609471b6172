// Package process supervises the skiff process of a data directory: it starts one in the background and waits until it is ready, finds the one that runs,
// terminates it, and keeps its log within a bound. `skiff up`, `stop`, `down` and `status` are made of it.
//
// Three contracts hold it together:
//   - At most one process uses a data directory. It holds a lock on <data-dir>/skiff.pid (LockPIDFile) for as long as it lives; the lock, not the number in
//     the file, says that it runs (PID).
//   - A process that was launched is ready once it has written a file that Launch is told of.
//   - Only one command at a time starts processes in a data directory (LockDirectory).
//
// containerd and what it runs are children of skiff and not of this package: see package bundle.
//
// It must not import the API server, its store or its cache, nor any component: it knows processes, locks and files, and nothing of Kubernetes.
package process
