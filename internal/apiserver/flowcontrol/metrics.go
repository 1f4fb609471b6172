package flowcontrol

import "github.com/prometheus/client_golang/prometheus"

// Stats are the counts of a Controller.
type Stats struct {
	ReadOnly, Mutating               int   // executing requests
	WaitingReadOnly, WaitingMutating int   // requests that wait for a seat
	Parked                           int   // requests that wait for their clients
	Rejected                         int64 // requests since the start
}

// Stats returns the current counts.
func (c *Controller) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{ReadOnly: c.executing[0] + int(c.exempt[0].Load()), Mutating: c.executing[1] + int(c.exempt[1].Load()),
		WaitingReadOnly: c.queued[0], WaitingMutating: c.queued[1], Parked: c.core.parked, Rejected: c.rejected}
}

// The metrics have upstream's names and labels.
var (
	bySchema = []string{"priority_level", "flow_schema"}
	byLevel  = bySchema[:1]

	rejectedTotal      = desc("rejected_requests_total", "Number of requests rejected by API Priority and Fairness subsystem", append(bySchema[:2:2], "reason"))
	dispatchedTotal    = desc("dispatched_requests_total", "Number of requests executed by API Priority and Fairness subsystem", bySchema)
	inqueueRequests    = desc("current_inqueue_requests", "Number of requests currently pending in queues of the API Priority and Fairness subsystem", bySchema)
	inqueueSeats       = desc("current_inqueue_seats", "Number of seats currently pending in queues of the API Priority and Fairness subsystem", bySchema)
	executingRequests  = desc("current_executing_requests", "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in the API Priority and Fairness subsystem", bySchema)
	executingSeats     = desc("current_executing_seats", "Concurrency (number of seats) occupied by the currently executing (initial stage for a WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem", bySchema)
	queueLengthSeen    = desc("request_queue_length_after_enqueue", "Length of queue in the API Priority and Fairness subsystem, as seen by each request after it is enqueued", bySchema)
	waitSeconds        = desc("request_wait_duration_seconds", "Length of time a request spent waiting in its queue", append(bySchema[:2:2], "execute"))
	executionSeconds   = desc("request_execution_seconds", "Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request execution in the API Priority and Fairness subsystem", append(bySchema[:2:2], "type"))
	workEstimatedSeats = desc("work_estimated_seats", "Number of estimated seats (maximum of initial and final seats) associated with requests in API Priority and Fairness", bySchema)
	nominalLimit       = desc("nominal_limit_seats", "Nominal number of execution seats configured for each priority level", byLevel)
	lowerLimit         = desc("lower_limit_seats", "Configured lower bound on number of execution seats available to each priority level", byLevel)
	upperLimit         = desc("upper_limit_seats", "Configured upper bound on number of execution seats available to each priority level", byLevel)
	currentLimit       = desc("current_limit_seats", "current derived number of execution seats available to each priority level", byLevel)
)

func desc(name, help string, labels []string) *prometheus.Desc {
	return prometheus.NewDesc("apiserver_flowcontrol_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector: which series there are depends on the configuration.
func (c *Controller) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *Controller) Collect(to chan<- prometheus.Metric) {
	if c.unfair {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.core.levels {
		l.collect(to, c.core)
	}
	for s := range c.config.Load().all {
		s.collect(to)
	}
}

func gauge(to chan<- prometheus.Metric, what *prometheus.Desc, value int, labels ...string) {
	to <- prometheus.MustNewConstMetric(what, prometheus.GaugeValue, float64(value), labels...)
}

func counter(to chan<- prometheus.Metric, what *prometheus.Desc, value int64, labels ...string) {
	to <- prometheus.MustNewConstMetric(what, prometheus.CounterValue, float64(value), labels...)
}

func distribution(to chan<- prometheus.Metric, what *prometheus.Desc, h *histogram, labels ...string) {
	if total, upTo := h.buckets(); total > 0 {
		to <- prometheus.MustNewConstHistogram(what, total, h.sum, upTo, labels...)
	}
}

func (l *level) collect(to chan<- prometheus.Metric, c *core) {
	current := l.inUse + c.free(l)
	if l.Exempt {
		current = max(l.lower, c.exemptInUse())
	}
	gauge(to, nominalLimit, l.nominal, l.Name)
	gauge(to, lowerLimit, l.lower, l.Name)
	gauge(to, upperLimit, l.upper, l.Name)
	gauge(to, currentLimit, current, l.Name)
}

// collect sends the metrics of a schema. One that has never matched a request has none.
func (s *schema) collect(to chan<- prometheus.Metric) {
	c, labels := s.counts, []string{s.level.Name, s.Name}
	with := func(value string) []string { return append(labels[:2:2], value) }
	for why, reason := range map[decision]string{wait: "time-out", rejectFull: "queue-full", rejectLimit: "concurrency-limit"} {
		if c.rejected[why] > 0 {
			counter(to, rejectedTotal, c.rejected[why], with(reason)...)
		}
	}
	executed, _ := c.waits[1].buckets()
	dispatched := int64(executed) + c.exemptDispatched.Load()
	if dispatched > 0 {
		counter(to, dispatchedTotal, dispatched, labels...)
		gauge(to, executingRequests, c.executing+int(c.exempt.Load()), labels...)
		gauge(to, executingSeats, c.seats+int(c.exempt.Load()), labels...)
	}
	if c.queueLength.seen() {
		gauge(to, inqueueRequests, c.queued, labels...)
		gauge(to, inqueueSeats, c.queuedSeats, labels...)
	}
	distribution(to, queueLengthSeen, &c.queueLength, labels...)
	distribution(to, workEstimatedSeats, &c.estimated, labels...)
	for i, execute := range []string{"false", "true"} {
		distribution(to, waitSeconds, &c.waits[i], with(execute)...)
	}
	for i, kind := range []string{"regular", "watch"} {
		took := c.execution[i].now()
		distribution(to, executionSeconds, &took, with(kind)...)
	}
}

func (h *histogram) seen() bool {
	total, _ := h.buckets()
	return total > 0
}
