// Package slis records the results of health checks and serves them at /metrics/slis, under the names and labels of upstream's
// k8s.io/component-base/metrics/prometheus/slis. Every component that serves health checks has its own Metrics.
//
// It must not import anything else of skiff.
package slis
