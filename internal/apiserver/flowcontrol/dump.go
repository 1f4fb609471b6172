package flowcontrol

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Dump writes one of upstream's tables for debugging: "dump_priority_levels", "dump_queues" or "dump_requests", with details of requests if asked for. It returns false
// if there is no table of that name.
//
// A queue is a flow with waiting or executing requests. Exempt requests are counted, not listed.
func (c *Controller) Dump(to io.Writer, table string, details bool) bool {
	var rows [][]string
	c.mu.Lock()
	switch table {
	case "dump_priority_levels":
		rows = c.dumpLevels()
	case "dump_queues":
		rows = c.dumpQueues()
	case "dump_requests":
		rows = c.dumpRequests(details)
	}
	c.mu.Unlock()
	if rows == nil {
		return false
	}
	out := tabwriter.NewWriter(to, 8, 0, 1, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(out, strings.Join(row, ",\t")) // to memory, until it is flushed
	}
	_ = out.Flush() // the client is gone if it fails
	return true
}

func (c *Controller) dumpLevels() [][]string {
	rows := [][]string{{"PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests", "DispatchedRequests", "RejectedRequests",
		"TimedoutRequests", "CancelledRequests"}}
	for _, l := range c.core.levels {
		active, executing, dispatched := 0, l.executing, l.dispatched
		for _, f := range l.flows {
			if len(f.queue) > 0 {
				active++
			}
		}
		if l.Exempt {
			executing = c.core.exemptInUse()
			for s := range c.config.Load().all {
				if s.level == l {
					dispatched += s.counts.exemptDispatched.Load()
				}
			}
		}
		rows = append(rows, []string{l.Name, strconv.Itoa(active), strconv.FormatBool(executing+l.queued == 0), strconv.FormatBool(l.draining), strconv.Itoa(l.queued),
			strconv.Itoa(executing), strconv.FormatInt(dispatched, 10), strconv.FormatInt(l.rejected, 10), strconv.FormatInt(l.timedOut, 10), strconv.FormatInt(l.canceled, 10)})
	}
	return rows
}

// sortedFlows returns the flows of a level in the order in which they are dumped.
func (l *level) sortedFlows() []*flow {
	return slices.SortedFunc(maps.Values(l.flows), func(a, b *flow) int {
		return slices.Compare([]string{a.key.schema, a.key.distinguisher}, []string{b.key.schema, b.key.distinguisher})
	})
}

func (c *Controller) dumpQueues() [][]string {
	rows := [][]string{{"PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse", "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum"}}
	for _, l := range c.core.levels {
		for i, f := range l.sortedFlows() {
			initial, most := 0, 0
			for _, w := range f.queue {
				initial += w.seat.work.Seats
				most += w.width
			}
			rows = append(rows, []string{l.Name, strconv.Itoa(i), strconv.Itoa(len(f.queue)), strconv.Itoa(f.executing), strconv.Itoa(f.inUse), "<none>", strconv.Itoa(initial),
				strconv.Itoa(most), "<none>"})
		}
	}
	return rows
}

func (c *Controller) dumpRequests(details bool) [][]string {
	header := []string{"PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher", "ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime"}
	if details {
		header = append(header, "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
	}
	rows := [][]string{header}
	for _, l := range c.core.levels {
		index := map[flowKey]int{}
		for i, f := range l.sortedFlows() {
			index[f.key] = i
			for j, w := range f.queue {
				rows = append(rows, w.seat.dump(i, j, details))
			}
		}
		for s := l.seats; s != nil; s = s.next {
			rows = append(rows, s.dump(index[s.key], -1, details))
		}
	}
	return rows
}

// dump returns the row of a request: at a place of its queue, or executing, if place is -1.
func (s *Seat) dump(queue, place int, details bool) []string {
	started := time.Time{}
	if place < 0 {
		started = s.Request.Arrived.Add(s.waited)
	}
	r := &s.Request
	row := []string{s.schema.level.Name, s.schema.Name, strconv.Itoa(queue), strconv.Itoa(place), s.key.distinguisher, r.Arrived.UTC().Format(time.RFC3339Nano),
		strconv.Itoa(s.work.Seats), strconv.Itoa(s.work.FinalSeats), s.work.AdditionalLatency.String(), started.UTC().Format(time.RFC3339Nano)}
	if !details {
		return row
	}
	version := r.Version
	if r.Group != "" {
		version = r.Group + "/" + version
	}
	return append(row, r.User, r.Verb, r.Path, r.Namespace, r.Name, version, r.Plural, r.Subresource)
}
