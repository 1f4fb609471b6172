// Package metrics counts the requests that the API server answers, under upstream's names and labels, so that existing dashboards and alerts work. The
// front counts every request here when it has been answered; /metrics shows the counts.
//
// It must not import any other room of the API server but request.
package metrics
