package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/response"
)

const testBudgets = "/apis/policy/v1/namespaces/test/poddisruptionbudgets"

// budget creates a PodDisruptionBudget for the pods of an app, with more of a spec and a status.
func (s *testServer) budget(name, app, spec, status string) {
	s.t.Helper()
	s.must("POST", testBudgets, `{"metadata":{"name":"`+name+`"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"`+app+`"}}`+spec+`}}`)
	if status != "" {
		s.must("PATCH", testBudgets+"/"+name+"/status", `{"status":`+status+`}`)
	}
}

func eviction(name, more string) string {
	return `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"` + name + `"}` + more + `}`
}

const violates = "Cannot evict pod as it would violate the pod's disruption budget."

func TestEvictionWithoutBudget(t *testing.T) {
	s := newTestServer(t)
	s.pod("p", "x", `,"nodeName":"n"`)
	s.running("p", "True")
	var p corev1.Pod
	s.get(testPods+"/p", &p)
	evict := testPods + "/p/eviction"
	// Codes and texts are those of kube-apiserver v1.37.1.
	s.expect(404, `pods "none" not found`, "POST", testPods+"/none/eviction", eviction("none", ""))
	s.expect(400, "name in URL does not match name in Eviction object", "POST", evict, eviction("other", ""))
	s.expect(409, fmt.Sprintf(`Operation cannot be fulfilled on Pod "p": the UID in the precondition (zz) does not match the UID in record (%s). The object might have been deleted and then recreated`, p.UID),
		"POST", evict, eviction("p", `,"deleteOptions":{"preconditions":{"uid":"zz"}}`))
	s.expect(409, fmt.Sprintf(`Operation cannot be fulfilled on Pod "p": the ResourceVersion in the precondition (1) does not match the ResourceVersion in record (%s). The object might have been modified`, p.ResourceVersion),
		"POST", evict, eviction("p", `,"deleteOptions":{"preconditions":{"resourceVersion":"1"}}`))
	s.expect(422, `Eviction.policy "p" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: can not be set for pod eviction, try after removing the option`,
		"POST", evict, eviction("p", `,"deleteOptions":{"ignoreStoreReadErrorWithClusterBreakingPotential":true}`))
	s.expect(422, `DeleteOptions.meta.k8s.io "" is invalid: propagationPolicy: Unsupported value: "x": supported values: "Foreground", "Background", "Orphan", "nil"`,
		"POST", evict, eviction("p", `,"deleteOptions":{"propagationPolicy":"x"}`))
	s.expect(405, response.ErrMethodNotAllowed.ErrStatus.Message, "GET", evict, "")
	s.expect(201, success, "POST", evict+"?dryRun=All", eviction("p", ""))
	s.expect(201, success, "POST", evict, eviction("p", `,"deleteOptions":{"dryRun":["All"]}`))
	s.get(testPods+"/p", &p)
	if p.DeletionTimestamp != nil || len(p.Status.Conditions) != 1 {
		t.Errorf("a refused eviction, or a dry run, left its mark: %v %v", p.DeletionTimestamp, p.Status.Conditions)
	}
	s.expect(201, success, "POST", evict, `{"apiVersion":"policy/v1beta1","kind":"Eviction","metadata":{"name":"p"},"deleteOptions":{"gracePeriodSeconds":7}}`)
	s.get(testPods+"/p", &p)
	if p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 7 || len(p.Status.Conditions) != 2 {
		t.Fatalf("evicted pod: %v %v", p.DeletionTimestamp, p.Status.Conditions)
	}
	if c := p.Status.Conditions[1]; c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue || c.Reason != "EvictionByEvictionAPI" || c.Message != "Eviction API: evicting" {
		t.Errorf("condition is %v", c)
	}
}

func TestEvictionOfPodsThatAreNobodysLoss(t *testing.T) {
	s := newTestServer(t)
	s.budget("b", "x", "", `{"observedGeneration":1,"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}`)
	s.pod("pending", "x", "")
	s.pod("done", "x", `,"nodeName":"n"`)
	s.must("PATCH", testPods+"/done/status", `{"status":{"phase":"Succeeded"}}`)
	for _, name := range []string{"pending", "done"} {
		s.expect(201, success, "POST", testPods+"/"+name+"/eviction", eviction(name, ""))
		s.expect(404, `pods "`+name+`" not found`, "GET", testPods+"/"+name, "")
	}
}

func TestEvictionHonoursBudgets(t *testing.T) {
	s := newTestServer(t)
	s.pod("p", "x", `,"nodeName":"n"`)
	s.running("p", "True")
	s.budget("b", "x", "", "")
	cause := func(want, method, path, body string) {
		t.Helper()
		status := s.expect(429, violates, method, path, body)
		if status.Details == nil || len(status.Details.Causes) != 1 || status.Details.Causes[0].Type != policyv1.DisruptionBudgetCause || status.Details.Causes[0].Message != want {
			t.Errorf("got %v\nwant the cause %s", status.Details, want)
		}
	}
	evict := testPods + "/p/eviction"
	set := func(status string) { s.must("PATCH", testBudgets+"/b/status", `{"status":`+status+`}`) }
	cause("The disruption budget b is still being processed by the server.", "POST", evict, eviction("p", ""))
	set(`{"observedGeneration":1,"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":1}`)
	cause("The disruption budget b needs 1 healthy pods and has 1 currently", "POST", evict, eviction("p", ""))
	cause("The disruption budget b needs 1 healthy pods and has 1 currently", "POST", evict+"?dryRun=All", eviction("p", ""))
	set(`{"currentHealthy":3}`)
	cause("The disruption budget b does not allow evicting pods currently", "POST", evict, eviction("p", ""))
	set(`{"disruptionsAllowed":1}`)
	s.expect(201, success, "POST", evict+"?dryRun=All", eviction("p", ""))
	s.expect(201, success, "POST", evict, eviction("p", ""))
	var b policyv1.PodDisruptionBudget
	s.get(testBudgets+"/b", &b)
	if _, noted := b.Status.DisruptedPods["p"]; b.Status.DisruptionsAllowed != 0 || !noted || len(b.Status.Conditions) != 1 {
		t.Errorf("status is %v", b.Status)
	}
	if c := b.Status.Conditions[0]; c.Type != policyv1.DisruptionAllowedCondition || c.Status != metav1.ConditionFalse || c.Reason != policyv1.InsufficientPodsReason {
		t.Errorf("condition is %v", c)
	}
	s.budget("second", "x", "", "")
	s.pod("q", "x", `,"nodeName":"n"`)
	s.running("q", "True")
	s.expect(500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.", "POST", testPods+"/q/eviction", eviction("q", ""))
}

// The cause of a refusal says what the budget's status does, and Retry-After is given only for what changes soon.
func TestEvictionSaysWhy(t *testing.T) {
	s := newTestServer(t)
	s.pod("p", "x", `,"nodeName":"n"`)
	s.running("p", "True")
	condition := func(reason, message string) string {
		return `{"observedGeneration":1,"disruptionsAllowed":0,"currentHealthy":3,"desiredHealthy":1,"expectedPods":3,"conditions":[{"type":"DisruptionAllowed","status":"False","reason":"` +
			reason + `","message":"` + message + `","lastTransitionTime":"2030-01-01T00:00:00Z"}]}`
	}
	var many []string
	for i := range 2001 {
		many = append(many, fmt.Sprintf(`"gone-%d":"2030-01-01T00:00:00Z"`, i))
	}
	for _, c := range []struct {
		name, status string
		code         int
		message      string
		cause        string
		retryAfter   string
	}{
		{"new", `{"disruptionsAllowed":3}`, http.StatusTooManyRequests, violates, "The disruption budget new is still being processed by the server.", "10"},
		{"failed", condition(policyv1.SyncFailedReason, "found no controllers"), http.StatusTooManyRequests, violates,
			"The disruption budget failed does not allow evicting pods currently because it failed sync: found no controllers", ""},
		{"few", condition(policyv1.InsufficientPodsReason, ""), http.StatusTooManyRequests, violates, "The disruption budget few does not allow evicting pods currently", ""},
		{"other", condition("Maintenance", "not on Sundays"), http.StatusTooManyRequests, violates, "The disruption budget other does not allow evicting pods currently (Maintenance): not on Sundays", ""},
		{"full", `{"observedGeneration":1,"disruptionsAllowed":3,"disruptedPods":{` + strings.Join(many, ",") + `}}`, http.StatusForbidden,
			`poddisruptionbudget.policy "full" is forbidden: DisruptedPods map too big - too many evictions not confirmed by PDB controller`,
			"The disruption budget full does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller", ""},
	} {
		s.budget(c.name, "x", "", c.status)
		status := s.expect(c.code, c.message, "POST", testPods+"/p/eviction", eviction("p", ""))
		if len(status.Details.Causes) != 1 || status.Details.Causes[0].Type != policyv1.DisruptionBudgetCause || status.Details.Causes[0].Message != c.cause {
			t.Errorf("%s: the causes are %v", c.name, status.Details.Causes)
		}
		if after := s.do("POST", testPods+"/p/eviction", eviction("p", "")).Header().Get("Retry-After"); after != c.retryAfter {
			t.Errorf("%s: Retry-After is %q", c.name, after)
		}
		s.must("DELETE", testBudgets+"/"+c.name, "")
	}
}

func TestEvictionOfUnhealthyPods(t *testing.T) {
	s := newTestServer(t)
	const none, enough = `{"observedGeneration":1,"disruptionsAllowed":0,"currentHealthy":0,"desiredHealthy":1,"expectedPods":1}`,
		`{"observedGeneration":1,"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":1,"expectedPods":2}`
	for _, c := range []struct {
		name, spec, status string
		code               int
	}{
		{"budget-lacks", "", none, http.StatusTooManyRequests},
		{"budget-has", "", enough, http.StatusCreated},
		{"always", `,"unhealthyPodEvictionPolicy":"AlwaysAllow"`, none, http.StatusCreated},
		{"if-healthy", `,"unhealthyPodEvictionPolicy":"IfHealthyBudget"`, none, http.StatusTooManyRequests},
	} {
		s.pod(c.name, c.name, `,"nodeName":"n"`)
		s.running(c.name, "False")
		s.budget(c.name, c.name, c.spec, c.status)
		if w := s.do("POST", testPods+"/"+c.name+"/eviction", eviction(c.name, "")); w.Code != c.code {
			t.Errorf("%s: got %d, want %d: %s", c.name, w.Code, c.code, w.Body)
		}
	}
}

func TestParallelEvictionsTakeNoMoreThanTheBudgetHas(t *testing.T) {
	s := newTestServer(t)
	const pods, allowed = 12, 5
	s.budget("b", "x", "", fmt.Sprintf(`{"observedGeneration":1,"disruptionsAllowed":%d,"currentHealthy":%d,"desiredHealthy":%d,"expectedPods":%d}`, allowed, pods, pods-allowed, pods))
	for i := range pods {
		s.pod(fmt.Sprintf("p%d", i), "x", `,"nodeName":"n"`)
		s.running(fmt.Sprintf("p%d", i), "True")
	}
	var evicted atomic.Int32
	var wg sync.WaitGroup
	for i := range pods {
		wg.Go(func() {
			name := fmt.Sprintf("p%d", i)
			switch w := s.do("POST", testPods+"/"+name+"/eviction", eviction(name, "")); w.Code {
			case http.StatusCreated:
				evicted.Add(1)
			case http.StatusTooManyRequests:
			default:
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	wg.Wait()
	if evicted.Load() != allowed {
		t.Errorf("%d pods were evicted, want %d", evicted.Load(), allowed)
	}
}
