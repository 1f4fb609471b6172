package journey

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

// clock is a clock that a test advances.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

const (
	deploymentUID = "0d9c2c9e-58c3-4a3a-9d6a-111111111111"
	replicaSetUID = "0d9c2c9e-58c3-4a3a-9d6a-222222222222"
)

// A deployment is created; a controller sees it and creates a replica set because of it.
func TestJourney(t *testing.T) {
	c := newClock()
	r := New(Options{Capacity: 8, Now: c.Now})

	user := r.Begin(http.Header{"User-Agent": {"kubectl/v1.37.1 (linux/amd64)"}}, "create", "deployments", "shop", "web")
	user.Stage(Authentication)
	c.Advance(100 * time.Microsecond)
	user.Stage(Authorization)
	c.Advance(50 * time.Microsecond)
	user.Stage("store")
	c.Advance(2 * time.Millisecond)
	user.Wrote("deployments", deploymentUID, 41)
	c.Advance(300 * time.Microsecond)
	r.Delivered(deploymentUID, 41)
	c.Advance(time.Second)
	r.Delivered(deploymentUID, 41) // later watchers do not count

	h := http.Header{}
	h.Set(HeaderCause, Cause{UID: deploymentUID, Revision: 41}.String())
	controller := r.Begin(h, "create", "replicasets", "shop", "")
	controller.Wrote("replicasets", replicaSetUID, 42)
	controller.End(http.StatusCreated)
	user.End(http.StatusCreated)

	if writer, ok := r.Writer(deploymentUID, 41); !ok || writer != user.Context() {
		t.Errorf("Writer = %v, %v; want %v", writer, ok, user.Context())
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	second := start.Add(1002450 * time.Microsecond)
	want := []TraceView{{
		SpanContext: user.Context(), Verb: "create", Resource: "deployments", Namespace: "shop", Name: "web", Component: "kubectl",
		Start: start, Duration: 1002450 * time.Microsecond, Code: 201,
		Stages: []StageView{
			{Name: "authentication", Duration: 100 * time.Microsecond},
			{Name: "authorization", Begin: 100 * time.Microsecond, Duration: 50 * time.Microsecond},
			{Name: "store", Begin: 150 * time.Microsecond, Duration: 1002300 * time.Microsecond},
			{Name: "watch delivery", Begin: 2150 * time.Microsecond, Duration: 300 * time.Microsecond},
		},
		Writes: []WriteView{{Resource: "deployments", UID: deploymentUID, Revision: 41, Delivered: start.Add(2450 * time.Microsecond)}},
	}, {
		SpanContext: controller.Context(), Verb: "create", Resource: "replicasets", Namespace: "shop",
		Start: second, Code: 201,
		Writes: []WriteView{{Resource: "replicasets", UID: replicaSetUID, Revision: 42}},
		Causes: []CauseView{{Cause: Cause{UID: deploymentUID, Revision: 41}, Writer: user.Context()}},
	}}
	if diff := cmp.Diff(want, r.Find(deploymentUID)); diff != "" {
		t.Errorf("Find(deployment) (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:], r.Find(replicaSetUID)); diff != "" {
		t.Errorf("Find(replica set) (-want +got):\n%s", diff)
	}
	if _, err := json.Marshal(r.Snapshot()); err != nil {
		t.Error(err)
	}
}

// The watch cache and a controller can be faster than the goroutine that wrote.
func TestDeliveryAndCauseBeforeWrote(t *testing.T) {
	r := New(Options{Capacity: 8})
	writer := r.Start("create", "pods", "a", "p", StartOptions{})
	r.Delivered("uid-1", 7)
	caused := r.Start("update", "pods", "a", "p", StartOptions{})
	caused.Because("uid-1", 7)
	caused.End(200)
	writer.Wrote("pods", "uid-1", 7)
	writer.End(201)

	views := r.Find("uid-1")
	if len(views) != 2 {
		t.Fatalf("Find: %d traces, want 2", len(views))
	}
	if views[0].Writes[0].Delivered.IsZero() {
		t.Error("the delivery before Wrote was lost")
	}
	if got := views[1].Causes[0].Writer; got != writer.Context() {
		t.Errorf("cause leads to %v, want %v", got, writer.Context())
	}
}

func TestNothingIsKeptForever(t *testing.T) {
	r := New(Options{Capacity: 4})
	for i := range 100 {
		w := r.Start("create", "pods", "a", fmt.Sprint("p", i), StartOptions{})
		w.Wrote("pods", fmt.Sprint("uid-", i), int64(1000+i))
		w.End(201)
		r.Start("get", "pods", "a", "p", StartOptions{}).End(200)
	}
	var names []string
	for _, v := range r.Snapshot() {
		names = append(names, v.Verb+" "+v.Name)
	}
	if got, want := strings.Join(names, ", "), "create p96, create p97, create p98, create p99, get p"; got != want {
		t.Errorf("Snapshot: %s\nwant %s", got, want)
	}
	if _, ok := r.Writer("uid-99", 1099); !ok {
		t.Error("the last version's writer is not known")
	}
	if _, ok := r.Writer("uid-80", 1080); ok {
		t.Error("a version that was displaced still has a writer")
	}
	r.Delivered("uid-80", 1080) // of an old version: must not displace a newer one
	if _, ok := r.Writer("uid-96", 1096); !ok {
		t.Error("an old delivery displaced a newer version")
	}
	if _, ok := r.Writer("another", 1099); ok {
		t.Error("another object's version has this writer")
	}
}

func TestLimits(t *testing.T) {
	r := New(Options{Capacity: 4})
	long := strings.Repeat("x", 1000)
	tr := r.Start("create", "pods", "namespace", long, StartOptions{Component: long})
	for i := range 100 {
		tr.Stage(fmt.Sprint("stage ", i))
		tr.Wrote("pods", fmt.Sprint("uid-", i), int64(i+1))
		tr.Because(fmt.Sprint("cause-", i), int64(i+1))
	}
	tr.Stage(long)
	tr.End(200)
	v := r.Find("uid-0")[0]
	if len(v.Stages) != maxStages || len(v.Writes) != maxWrites || len(v.Causes) != MaxCauses {
		t.Errorf("%d stages, %d writes, %d causes", len(v.Stages), len(v.Writes), len(v.Causes))
	}
	if got := len(v.Resource) + len(v.Namespace) + len(v.Name) + len(v.Component); got != maxText || v.Namespace != "namespace" {
		t.Errorf("%d bytes of text kept, want %d", got, maxText)
	}
	if _, ok := r.Writer("uid-99", 100); !ok {
		t.Error("Writer does not know a version that was not listed")
	}
	for i := range 2 * maxNames {
		r.names.id(fmt.Sprint("name ", i))
	}
	if n := len(r.names.table.Load().names); n != maxNames {
		t.Errorf("%d names kept, want %d", n, maxNames)
	}
	if got := r.names.name(r.names.id("one more")); got != otherNames {
		t.Errorf("a name too many is called %q", got)
	}
}

func TestMemory(t *testing.T) {
	r := New(Options{})
	total := len(r.traces.slots)*int(unsafe.Sizeof(slot{})) + len(r.reads.slots)*int(unsafe.Sizeof(slot{})) +
		len(r.versions.entries)*int(unsafe.Sizeof(version{})) + maxNames*(maxNameLength+2*16+2) +
		len(r.spans.bytes) + len(r.spans.entries)*int(unsafe.Sizeof(extent{})) + len(r.calls.bytes) + len(r.calls.entries)*int(unsafe.Sizeof(extent{}))
	t.Logf("a record takes %d bytes, all of it %.1f MB", unsafe.Sizeof(record{}), float64(total)/1e6)
	if total > 10.5e6 {
		t.Errorf("the recorder takes %d bytes; doc.go says about 10 MB", total)
	}
}

func TestNilAndEnded(t *testing.T) {
	var r *Recorder
	tr := r.Begin(http.Header{}, "get", "pods", "", "")
	tr.Stage("x")
	tr.Wrote("pods", "u", 1)
	tr.Because("u", 1)
	tr.End(200)
	r.Delivered("u", 1)
	if _, ok := r.Writer("u", 1); ok || r.Snapshot() != nil || r.Find("u") != nil || !tr.Context().IsZero() {
		t.Error("a nil recorder knows something")
	}

	r = New(Options{Capacity: 4})
	tr = r.Start("create", "pods", "", "", StartOptions{})
	tr.End(200)
	tr.End(500)
	tr.Stage("late")
	tr.Wrote("pods", "u", 1)
	tr.Because("u", 1)
	if got := r.Snapshot(); len(got) != 1 || got[0].Code != 200 || got[0].Stages != nil || got[0].Writes != nil || got[0].Causes != nil {
		t.Errorf("after End: %+v", got)
	}
}

// Many writers, watchers and readers at once; run with -race.
func TestConcurrent(t *testing.T) {
	r := New(Options{Capacity: 64})
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 500 {
				revision := int64(worker*500 + i + 1)
				uid := fmt.Sprint("uid-", revision)
				tr := r.Start("create", "pods", "ns", "name", StartOptions{})
				tr.Stage("store")
				tr.Wrote("pods", uid, revision)
				tr.Because(fmt.Sprint("uid-", revision-1), revision-1)
				tr.End(201)
				r.Delivered(uid, revision)
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for range 20 {
				for _, v := range r.Snapshot() {
					if v.Verb != "create" || v.Writes[0].UID != fmt.Sprint("uid-", v.Writes[0].Revision) {
						t.Errorf("torn trace: %+v", v)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if got := len(r.Snapshot()); got != 64 {
		t.Errorf("%d traces kept, want 64", got)
	}
}

// Rejected requests do not displace the traces of others, although they name causes.
func TestTurnedAway(t *testing.T) {
	r := New(Options{Capacity: 8})
	writer := r.Begin(http.Header{}, "create", "deployments.apps", "shop", "web")
	writer.Wrote("deployments.apps", deploymentUID, 41)
	writer.End(http.StatusCreated)
	for range 100 {
		for _, code := range []int{http.StatusUnauthorized, http.StatusTooManyRequests} {
			r.Begin(http.Header{HeaderCause: {Cause{UID: deploymentUID, Revision: 41}.String()}}, "create", "pods", "shop", "x").End(code)
		}
	}
	if r.Last("deployments.apps", "shop", "web") != deploymentUID {
		t.Error("the trace of the deployment is gone")
	}
}
