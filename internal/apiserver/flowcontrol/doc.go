// Package flowcontrol decides which requests execute now, which wait in a queue and which are rejected with 429, so that the system, the
// nodes and each user cannot starve one another. The API server asks it for a seat after authentication and before authorization.
//
// A request belongs to the priority level and the flow (one user, or one namespace) that the first matching Schema names. DefaultLevels and
// DefaultSchemas are upstream's mandatory and suggested configuration, so that FlowSchema and PriorityLevelConfiguration objects can take
// their place.
//
// How seats are shared (core.go, a state machine without clock, goroutines or locks):
//
//   - The server has --max-requests-inflight plus --max-mutating-requests-inflight seats. Each level is guaranteed its nominal share less its
//     lendable percentage; the rest is a pool from which every level may borrow as many seats as it leaves free.
//   - Within a level a flow may hold as many seats as it leaves free for others (the dynamic threshold of shared packet buffers). So one flow
//     gets at most half of what the level can have, n flows that all want more get 1/(n+1) each, and a newcomer finds a seat without waiting.
//   - A flow that is at its threshold waits in a FIFO queue of its own; flows with waiting requests are served round-robin.
//
// A request that waits for its client (a closed HTTP/2 window, a body that has not arrived) does not need its seat: Seat.Park gives it
// back. The number of parked requests is bounded, per flow and in total; a request over the bound keeps its seat.
//
// What differs from upstream: queues are not shuffle-sharded, as flows are counted exactly; borrowing is decided per request, not every ten
// seconds; every request takes one seat, whatever it costs; watches take none.
//
// It must not import anything else of skiff: it deals neither in HTTP nor in the API's objects.
package flowcontrol
