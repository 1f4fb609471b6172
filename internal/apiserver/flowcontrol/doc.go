// Package flowcontrol decides which requests execute now, which wait in a queue and which are rejected with 429, so that the system, the
// nodes and each user cannot starve one another. The API server asks it for a seat after authentication and impersonation and before
// authorization.
//
// A request belongs to the priority level that the first matching Schema names, and there to a flow: of one user, of one namespace, or of the
// whole schema. Package flowcontrol/config makes levels and schemas of PriorityLevelConfiguration and FlowSchema objects and hands them to
// Controller.Configure, which swaps them as a whole.
//
// How seats are shared (core.go, a state machine without clock, goroutines or locks):
//
//   - The server has --max-requests-inflight plus --max-mutating-requests-inflight seats. limits.go divides them among levels with upstream's
//     formulas: nominal, lower and upper limit. A level can always have its lower limit. What it lends is a pool: a level takes seats up to its
//     nominal limit from there as long as there are any, and borrows more, up to its upper limit, as many as it leaves in the pool.
//   - A request takes one seat, or more: a list of many objects, a write that many watchers are told of (Work).
//   - Within a level with several queues a flow may hold twice as many seats as it leaves free for others (a dynamic threshold, as of
//     shared packet buffers), so that a newcomer finds a seat without waiting.
//   - A flow that is at its threshold waits in a FIFO queue of its own, as long as the hand of queues that the level deals to a flow; flows with
//     waiting requests are served in turn, and a flow whose request took several seats is passed over as often.
//   - A level that is deleted goes on until it has no requests.
//
// A request that waits for its client (a closed HTTP/2 window, a body that has not arrived) does not need its seat: Seat.Park gives it
// back. The number of parked requests is bounded, per flow and in total; a request over the bound keeps its seat.
//
// A level that rejects more than a hundred requests a second holds further rejections back for a second: clients that do not wait when they are told to would
// otherwise cost more than their requests.
//
// What differs from upstream: queues are not shuffle-sharded, as flows are counted exactly; borrowing is decided per request, not every ten
// seconds; turns count seats, not the time for which they are held.
//
// It must not import anything else of skiff: it deals neither in HTTP nor in the API's objects.
package flowcontrol
