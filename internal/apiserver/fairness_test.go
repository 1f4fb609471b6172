package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn"
)

const (
	flowSchemas    = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
	priorityLevels = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
)

// as sends a request of a user.
func (s *server) as(user, method, path string, headers ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(s.t.Context(), method, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	s.api.ServeHTTP(w, r.WithContext(authn.InProcess(r.Context(), &authn.User{Username: user, Groups: []string{authn.SystemAuthenticated}})))
	return w
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not %s", what)
		}
	}
}

func uidOf(t *testing.T, a answer) string {
	t.Helper()
	var o struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(a.ok().Body, &o); err != nil {
		t.Fatal(err)
	}
	return o.Metadata.UID
}

const mySchema = `{"metadata":{"name":"mine"},"spec":{"matchingPrecedence":500,"priorityLevelConfiguration":{"name":"mine"},"distinguisherMethod":{"type":"ByUser"},
	"rules":[{"subjects":[{"kind":"User","user":{"name":"noxu"}}],"nonResourceRules":[{"verbs":["*"],"nonResourceURLs":["*"]}],
		"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"clusterScope":true,"namespaces":["*"]}]}]}}`

// TestFlowSchemas: objects that configure flow control do so, and their status says whether they can.
func TestFlowSchemas(t *testing.T) {
	s := start(t)
	schema := uidOf(t, s.send("POST", flowSchemas, mySchema))
	dangling := func() flowcontrolv1.ConditionStatus {
		var o flowcontrolv1.FlowSchema
		if err := json.Unmarshal(s.send("GET", flowSchemas+"/mine", nil).ok().Body, &o); err != nil {
			t.Fatal(err)
		}
		for _, c := range o.Status.Conditions {
			if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
				for _, m := range o.ManagedFields {
					if m.Manager == "api-priority-and-fairness-config-consumer-v1" && m.Subresource == "status" && m.Operation == "Apply" {
						return c.Status
					}
				}
				t.Errorf("the condition belongs to %+v", o.ManagedFields)
			}
		}
		return ""
	}
	eventually(t, "dangling", func() bool { return dangling() == flowcontrolv1.ConditionTrue })
	level := uidOf(t, s.send("POST", priorityLevels, `{"metadata":{"name":"mine"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":1,"limitResponse":{"type":"Reject"}}}}`))
	eventually(t, "found", func() bool { return dangling() == flowcontrolv1.ConditionFalse })

	check := func(w *httptest.ResponseRecorder, schema, level string) {
		t.Helper()
		if got := w.Header().Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); got != schema {
			t.Errorf("the schema is %s, want %s", got, schema)
		}
		if got := w.Header().Get(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID); got != level {
			t.Errorf("the level is %s, want %s", got, level)
		}
	}
	check(s.as("noxu", "GET", "/version"), schema, level)
	check(s.as("noxu", "GET", "/api/v1/namespaces/default/pods"), schema, level)
	impersonating := s.send("GET", "/version", nil, "Impersonate-User", "noxu", "Impersonate-Group", "system:authenticated").ok()
	if got := impersonating.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); got != schema {
		t.Errorf("a request that impersonates the user is classified by %s", got)
	}
	check(s.as("foo", "GET", "/version"), uidOf(t, s.send("GET", flowSchemas+"/global-default", nil)), uidOf(t, s.send("GET", priorityLevels+"/global-default", nil)))

	// Watches take one of the three seats only until they have begun.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	for i := range 5 {
		watches.Go(func() {
			r := httptest.NewRequestWithContext(ctx, "GET", "/api/v1/nodes?watch=1", nil)
			s.api.ServeHTTP(httptest.NewRecorder(), r.WithContext(authn.InProcess(ctx, &authn.User{Username: "noxu", Groups: []string{authn.SystemAuthenticated}})))
		})
		eventually(t, "begun", func() bool {
			return strings.Contains(string(s.send("GET", "/metrics", nil).ok().Body),
				fmt.Sprintf(`apiserver_flowcontrol_request_execution_seconds_count{flow_schema="mine",priority_level="mine",type="watch"} %d`, i+1))
		})
	}
	if w := s.as("noxu", "GET", "/version"); w.Code != http.StatusOK {
		t.Errorf("beside five watches a request is answered with %d", w.Code)
	}

	metrics := string(s.send("GET", "/metrics", nil).ok().Body)
	for _, want := range []string{`apiserver_flowcontrol_nominal_limit_seats{priority_level="mine"} 3`, `apiserver_flowcontrol_lower_limit_seats{priority_level="workload-low"} 24`,
		`apiserver_flowcontrol_dispatched_requests_total{flow_schema="mine",priority_level="mine"} 9`, `apiserver_flowcontrol_current_limit_seats{priority_level="catch-all"}`,
		`apiserver_flowcontrol_request_wait_duration_seconds_count{execute="true",flow_schema="mine",priority_level="mine"} 9`,
		`apiserver_flowcontrol_request_execution_seconds_count{flow_schema="mine",priority_level="mine",type="regular"} 4`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	dump := string(s.send("GET", "/debug/api_priority_and_fairness/dump_priority_levels", nil).ok().Body)
	if header, row, _ := strings.Cut(dump, "\n"); !strings.HasPrefix(header, "PriorityLevelName,") || !strings.Contains(row, "mine,") {
		t.Errorf("the levels: %s", dump)
	}
	if code := s.send("GET", "/debug/api_priority_and_fairness/dump_everything", nil).Code; code != http.StatusNotFound {
		t.Errorf("an unknown table is answered with %d", code)
	}

	s.send("DELETE", priorityLevels+"/mine", nil).ok()
	eventually(t, "dangling again", func() bool { return dangling() == flowcontrolv1.ConditionTrue })
	check(s.as("noxu", "GET", "/version"), uidOf(t, s.send("GET", flowSchemas+"/global-default", nil)), uidOf(t, s.send("GET", priorityLevels+"/global-default", nil)))
}

// TestFlowRejection: what finds no seat is answered with 429 and is told when to try again.
func TestFlowRejection(t *testing.T) {
	s := start(t)
	s.send("POST", priorityLevels, `{"metadata":{"name":"mine"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":0,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}}}}`).ok()
	s.send("POST", flowSchemas, mySchema).ok()
	eventually(t, "rejected", func() bool { return s.as("noxu", "GET", "/version").Code == http.StatusTooManyRequests })
	w := s.as("noxu", "GET", "/version")
	if w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "Too many requests, please try again later.") || w.Header().Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) == "" {
		t.Errorf("the rejection: %v %s", w.Header(), w.Body)
	}
	if metrics := string(s.send("GET", "/metrics", nil).ok().Body); !strings.Contains(metrics, `apiserver_flowcontrol_rejected_requests_total{flow_schema="mine",priority_level="mine",reason="concurrency-limit"}`) {
		t.Error("/metrics has no rejection")
	}
}

// TestUnfair: without priority and fairness there are two limits, which administrators need not keep.
func TestUnfair(t *testing.T) {
	s := start(t, func(o *apiserver.Options) { o.NoFairness, o.MaxInFlight, o.MaxMutatingInFlight = true, 1, -1 })
	w := s.as("alice", "GET", "/version")
	if w.Code != http.StatusOK || w.Header().Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID) != "" {
		t.Errorf("alice's request: %d %v", w.Code, w.Header())
	}
	// A list that is being written to a client that does not read holds the only place.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		r := httptest.NewRequestWithContext(ctx, "GET", "/version", nil)
		s.api.ServeHTTP(&blockedWriter{httptest.NewRecorder(), begun, ctx}, r.WithContext(authn.InProcess(r.Context(), &authn.User{Username: "alice", Groups: []string{authn.SystemAuthenticated}})))
	}()
	<-begun
	if code := s.as("bob", "GET", "/version").Code; code != http.StatusTooManyRequests {
		t.Errorf("a second read is answered with %d", code)
	}
	if code := s.send("GET", "/version", nil).Code; code != http.StatusOK {
		t.Errorf("the administrator's read is answered with %d", code)
	}
	if code := s.as("bob", "POST", "/version").Code; code == http.StatusTooManyRequests {
		t.Errorf("a write is answered with %d", code)
	}
	cancel()
	<-ended
	if code := s.as("bob", "GET", "/version").Code; code != http.StatusOK {
		t.Errorf("a read after that is answered with %d", code)
	}
	if code := s.send("GET", "/debug/api_priority_and_fairness/dump_priority_levels", nil).Code; code != http.StatusNotFound {
		t.Errorf("the levels are answered with %d", code)
	}
}

// blockedWriter is a response that blocks until ctx ends.
type blockedWriter struct {
	*httptest.ResponseRecorder
	begun chan struct{}
	ctx   context.Context
}

func (w *blockedWriter) Write(b []byte) (int, error) {
	close(w.begun)
	<-w.ctx.Done()
	return len(b), nil
}

// TestRestoredFlowSchemas: what every cluster has comes back.
func TestRestoredFlowSchemas(t *testing.T) {
	s := start(t, func(o *apiserver.Options) { o.FairnessRestoreEvery = 10 * time.Millisecond })
	s.send("DELETE", flowSchemas+"/exempt", nil).ok()
	s.send("DELETE", priorityLevels+"/system", nil).ok()
	s.send("PATCH", priorityLevels+"/workload-low", `{"spec":{"limited":{"nominalConcurrencyShares":7}}}`, "Content-Type", "application/merge-patch+json").ok()
	s.send("PATCH", priorityLevels+"/workload-high", `{"metadata":{"annotations":{"apf.kubernetes.io/autoupdate-spec":"false"}},"spec":{"limited":{"nominalConcurrencyShares":7}}}`, "Content-Type", "application/merge-patch+json").ok()
	eventually(t, "restored", func() bool {
		return s.send("GET", flowSchemas+"/exempt", nil).Code == http.StatusOK && s.send("GET", priorityLevels+"/system", nil).Code == http.StatusOK &&
			strings.Contains(string(s.send("GET", priorityLevels+"/workload-low", nil).ok().Body), `"nominalConcurrencyShares":100`)
	})
	if high := string(s.send("GET", priorityLevels+"/workload-high", nil).ok().Body); !strings.Contains(high, `"nominalConcurrencyShares":7`) {
		t.Errorf("the administrator's level was changed: %s", high)
	}
}
