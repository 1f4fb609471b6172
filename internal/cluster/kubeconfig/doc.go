// Package kubeconfig writes kubeconfigs and edits those of the user: it adds a cluster's context to the file that kubectl would use, renews it with the
// administrator's certificate, and removes it when the cluster is purged.
//
// Contracts:
//   - Merge adds a cluster, a user and a context under one name, and refuses a name that stands for another cluster.
//   - What was added to which file is recorded in the data directory (RecordFile). Refresh and Remove change only entries that are still as they were added.
//   - Everything else in a user's file, comments and unknown fields included, stays as it was written. Files are locked as kubectl locks them, replaced by a
//     rename, keep their owner, and symbolic links are followed.
//
// It must not import the API server, its store or its cache, nor any component: it knows files, and nothing of the cluster but its kubeconfig.
package kubeconfig
