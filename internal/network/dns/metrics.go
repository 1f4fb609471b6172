package dns

import (
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// zoneKind is the kind of zone that a query is counted under.
type zoneKind uint8

const (
	zoneNone zoneKind = iota // the query could not be read, or is refused whatever its name
	zoneCluster
	zoneReverse
	zoneForwarded
	zoneKinds
)

// kinds lists the record types that have a count of their own.
var kinds = []struct {
	number uint16
	name   string
}{
	{typeA, "A"}, {typeAAAA, "AAAA"}, {typeSRV, "SRV"}, {typePTR, "PTR"}, {typeTXT, "TXT"}, {typeCNAME, "CNAME"}, {typeNS, "NS"}, {typeSOA, "SOA"},
	{typeMX, "MX"}, {0, "other"},
}

const maxKinds, maxCodes = 10, 17

var codes = map[int]string{0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED", 16: "BADVERS"}

// buckets lists the upper bounds of the duration histogram in seconds, as CoreDNS has them.
var buckets = []float64{0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192}

const maxBuckets = 17

// counts holds the counters of one receiver. Each receiver has its own, so that processors do not contend.
type counts struct {
	requests              [zoneKinds][2][maxKinds]atomic.Uint64 // the second index is 0 for TCP, 1 for UDP
	responses             [zoneKinds][maxCodes]atomic.Uint64
	durations             [zoneKinds][maxBuckets]atomic.Uint64
	durationSums          [zoneKinds]atomic.Int64 // nanoseconds
	hits, denials, misses atomic.Uint64
	panics                atomic.Uint64
}

// answered counts a query and its answer, and returns the answer.
func (c *counts) answered(q *query, zone zoneKind, udp bool, msg []byte) []byte {
	q.zone = zone
	kind := len(kinds) - 1
	for i := range kinds {
		if kinds[i].number == q.qtype {
			kind = i
			break
		}
	}
	c.requests[zone][b2u(udp)][kind].Add(1)
	code := int(msg[3] & 0xF)
	if q.version != 0 && code == 0 {
		code = rcodeBadVersion
	}
	c.responses[zone][code].Add(1)
	return msg
}

// observe adds the duration of a batch of queries to the histogram, once for each of them.
func (c *counts) observe(zones []zoneKind, d time.Duration) {
	bucket := 0
	for bucket < len(buckets) && d.Seconds() > buckets[bucket] {
		bucket++
	}
	for _, zone := range zones {
		if zone != zoneNone {
			c.durations[zone][bucket].Add(1)
			c.durationSums[zone].Add(int64(d))
		}
	}
}

// forwardCounts holds the counters of forwarded queries.
type forwardCounts struct {
	refused atomic.Uint64
	mu      sync.Mutex
	to      map[netip.AddrPort]*upstreamCounts
}

type upstreamCounts struct {
	codes    [maxCodes]uint64
	failures uint64
}

// maxUpstreamCounts bounds the upstream servers with counters of their own. When there are more, all counters start again.
const maxUpstreamCounts = 64

func (f *forwardCounts) count(server netip.AddrPort, r *response, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.to == nil {
		f.to = map[netip.AddrPort]*upstreamCounts{}
	}
	a := f.to[server]
	if a == nil {
		if len(f.to) >= maxUpstreamCounts {
			clear(f.to)
		}
		a = &upstreamCounts{}
		f.to[server] = a
	}
	if err != nil {
		a.failures++
		return
	}
	a.codes[r.rcode()]++
}

// metrics is the Prometheus collector that sums up the counters of all receivers.
type metrics struct {
	registry *prometheus.Registry
	server   *Server
	zones    [zoneKinds]string

	mu  sync.Mutex
	all []*counts
}

var (
	requestsDesc  = prometheus.NewDesc("coredns_dns_requests_total", "Questions by zone, protocol and type.", []string{"zone", "proto", "type"}, nil)
	responsesDesc = prometheus.NewDesc("coredns_dns_responses_total", "Answers by zone and code.", []string{"zone", "rcode"}, nil)
	durationDesc  = prometheus.NewDesc("coredns_dns_request_duration_seconds", "How long questions took that others need not be asked about.", []string{"zone"}, nil)
	hitsDesc      = prometheus.NewDesc("coredns_cache_hits_total", "Questions about other names whose answer was known.", []string{"type"}, nil)
	missesDesc    = prometheus.NewDesc("coredns_cache_misses_total", "Questions about other names whose answer was not known.", nil, nil)
	entriesDesc   = prometheus.NewDesc("coredns_cache_entries", "Answers about other names that are known.", nil, nil)
	forwardDesc   = prometheus.NewDesc("coredns_forward_responses_total", "Answers of other servers by code.", []string{"to", "rcode"}, nil)
	failuresDesc  = prometheus.NewDesc("coredns_forward_failures_total", "Questions that another server did not answer.", []string{"to"}, nil)
	refusedDesc   = prometheus.NewDesc("coredns_forward_max_concurrent_rejects_total", "Questions refused because too many wait for others.", nil, nil)
	panicsDesc    = prometheus.NewDesc("coredns_panics_total", "Questions that a mistake in this program left without an answer.", nil, nil)
	droppedDesc   = prometheus.NewDesc("skiff_dns_dropped_total", "Queries and connections that came neither from a pod nor from the node.", nil, nil)
	waitingDesc   = prometheus.NewDesc("coredns_forward_waiting", "Questions that wait for other servers.", nil, nil)
)

func newMetrics(s *Server, domain string) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), server: s}
	m.zones = [...]string{zoneNone: "", zoneCluster: domain + ".", zoneReverse: "arpa.", zoneForwarded: "."}
	m.registry.MustRegister(m)
	return m
}

// newCounts returns the counters for another receiver.
func (m *metrics) newCounts() *counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &counts{}
	m.all = append(m.all, c)
	return c
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(m, out) }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	all := m.all
	m.mu.Unlock()
	sum := func(of func(*counts) uint64) (total float64) {
		for _, c := range all {
			total += float64(of(c))
		}
		return total
	}
	counter := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
	}
	for zone, name := range m.zones {
		for proto, protocol := range []string{"tcp", "udp"} {
			for kind := range kinds {
				if n := sum(func(c *counts) uint64 { return c.requests[zone][proto][kind].Load() }); n > 0 {
					counter(requestsDesc, n, name, protocol, kinds[kind].name)
				}
			}
		}
		for code := range maxCodes {
			if n := sum(func(c *counts) uint64 { return c.responses[zone][code].Load() }); n > 0 {
				counter(responsesDesc, n, name, codeName(code))
			}
		}
		m.collectDuration(out, all, zoneKind(zone), name)
	}
	counter(hitsDesc, sum(func(c *counts) uint64 { return c.hits.Load() }), "success")
	counter(hitsDesc, sum(func(c *counts) uint64 { return c.denials.Load() }), "denial")
	counter(missesDesc, sum(func(c *counts) uint64 { return c.misses.Load() }))
	counter(panicsDesc, sum(func(c *counts) uint64 { return c.panics.Load() }))
	counter(droppedDesc, float64(m.server.sources.dropped.Load()))
	f := m.server.forward
	out <- prometheus.MustNewConstMetric(entriesDesc, prometheus.GaugeValue, float64(f.cache.len()))
	out <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(len(f.slots)))
	counter(refusedDesc, float64(f.counts.refused.Load()))
	f.counts.mu.Lock()
	defer f.counts.mu.Unlock()
	for to, a := range f.counts.to {
		counter(failuresDesc, float64(a.failures), to.String())
		for code, n := range a.codes {
			if n > 0 {
				counter(forwardDesc, float64(n), to.String(), codeName(code))
			}
		}
	}
}

func (m *metrics) collectDuration(out chan<- prometheus.Metric, all []*counts, zone zoneKind, name string) {
	upTo, count, seconds := map[float64]uint64{}, uint64(0), 0.0
	for b := range maxBuckets {
		for _, c := range all {
			count += c.durations[zone][b].Load()
		}
		if b < len(buckets) {
			upTo[buckets[b]] = count
		}
	}
	for _, c := range all {
		seconds += time.Duration(c.durationSums[zone].Load()).Seconds()
	}
	if count > 0 {
		out <- prometheus.MustNewConstHistogram(durationDesc, count, seconds, upTo, name)
	}
}

func codeName(code int) string {
	if name := codes[code]; name != "" {
		return name
	}
	return strconv.Itoa(code)
}
