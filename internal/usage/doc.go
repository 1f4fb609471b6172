// Package usage measures what nodes and the containers of their pods use, for the API server's metrics.k8s.io. A Meter asks the kubelets of the nodes that a
// request is about, and keeps what they answer for the time that metrics-server calls its resolution. Nothing is measured, and after a moment nothing is kept,
// while nobody asks.
//
// A kubelet counts CPU time since a container was started. The Meter makes a rate of two counts; their distance is the window of the metrics. Who has asked
// a moment ago has the window since then; for the first one two counts are taken in a row, so that a cluster that was left alone answers at once, where
// metrics-server would not have measured yet.
//
// It must not import any other room of skiff: how a kubelet is reached is passed in.
package usage
