package controller

import "k8s.io/client-go/util/workqueue"

// queueMetrics is where the queues of all loops report to; nothing is kept unless somebody sets one with SetQueueMetrics.
var queueMetrics workqueue.MetricsProvider

// SetQueueMetrics has the queues of loops made afterwards report their depth, latency and retries.
func SetQueueMetrics(p workqueue.MetricsProvider) { queueMetrics = p }
