package apiserver

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver/response"
)

func TestBindingRefusals(t *testing.T) {
	s := newTestServer(t)
	s.pod("p", "x", "")
	s.pod("gated", "x", `,"schedulingGates":[{"name":"example.com/g"}]`)
	s.pod("leaving", "x", `,"nodeName":"n"`)
	s.must("DELETE", testPods+"/leaving", "")
	var p corev1.Pod
	s.get(testPods+"/p", &p)
	to := func(name string) string {
		return `{"metadata":{"name":"` + name + `"},"target":{"kind":"Node","name":"n"}}`
	}
	// Codes and texts are those of kube-apiserver v1.37.1.
	s.expect(500, "target.name: Required value", "POST", testPods+"/p/binding", `{"metadata":{"name":"p"},"target":{"kind":"Node"}}`)
	s.expect(500, `target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"`, "POST", testPods+"/p/binding", `{"metadata":{"name":"p"},"target":{"kind":"Pod","name":"n"}}`)
	s.expect(400, "name in URL does not match name in Binding object", "POST", testPods+"/p/binding", to("other"))
	s.expect(400, "the namespace of the provided object does not match the namespace sent on the request", "POST", testPods+"/p/binding",
		`{"metadata":{"name":"p","namespace":"other"},"target":{"name":"n"}}`)
	s.expect(409, fmt.Sprintf(`Operation cannot be fulfilled on pods "p": StorageError: invalid object, Code: 4, Key: /registry/pods/test/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: zz, UID in object meta: %s`, p.UID),
		"POST", testPods+"/p/binding", `{"metadata":{"name":"p","uid":"zz"},"target":{"name":"n"}}`)
	s.expect(409, fmt.Sprintf(`Operation cannot be fulfilled on pods "p": StorageError: invalid object, Code: 4, Key: /registry/pods/test/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: ResourceVersion in precondition: 1, ResourceVersion in object meta: %s`, p.ResourceVersion),
		"POST", testPods+"/p/binding", `{"metadata":{"name":"p","resourceVersion":"1"},"target":{"name":"n"}}`)
	s.expect(409, `Operation cannot be fulfilled on pods/binding "gated": pod gated has non-empty .spec.schedulingGates`, "POST", testPods+"/gated/binding", to("gated"))
	s.expect(409, `Operation cannot be fulfilled on pods/binding "leaving": pod leaving is being deleted, cannot be assigned to a host`, "POST", testPods+"/leaving/binding", to("leaving"))
	s.expect(404, `pods "none" not found`, "POST", testPods+"/none/binding", to("none"))
	s.expect(404, `namespaces "none" not found`, "POST", "/api/v1/namespaces/none/pods/p/binding", to("p"))
	s.expect(400, "Name parameter required.", "POST", "/api/v1/namespaces/test/bindings", `{"target":{"name":"n"}}`)
	s.expect(405, response.ErrMethodNotAllowed.ErrStatus.Message, "GET", testPods+"/p/binding", "")
	s.expect(404, response.ErrNotFound.ErrStatus.Message, "GET", "/api/v1/namespaces/test/bindings/p", "")
	s.expect(404, response.ErrNotFound.ErrStatus.Message, "POST", testPods+"/p/binding/more", to("p"))
	s.expect(201, success, "POST", testPods+"/p/binding?dryRun=All", to("p"))
	s.get(testPods+"/p", &p)
	if p.Spec.NodeName != "" {
		t.Errorf("a refused binding, or a dry run, put the pod on %q", p.Spec.NodeName)
	}
}

func TestBinding(t *testing.T) {
	s := newTestServer(t)
	for _, name := range []string{"a", "b"} {
		s.pod(name, "x", "")
		s.must("PATCH", testPods+"/"+name+"/status", `{"status":{"nominatedNodeName":"m","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"full"}]}}`)
		path := testPods + "/a/binding"
		if name == "b" {
			path = "/api/v1/namespaces/test/bindings"
		}
		status := s.expect(201, success, "POST", path,
			`{"metadata":{"name":"`+name+`","annotations":{"note":"yes","pod.beta.kubernetes.io/init-containers":"no"},"labels":{"zone":"z","app":"y"}},"target":{"kind":"Node","name":"n"}}`)
		if status.Status != "Success" {
			t.Errorf("got status %q", status.Status)
		}
		var p corev1.Pod
		s.get(testPods+"/"+name, &p)
		if p.Spec.NodeName != "n" || p.Status.NominatedNodeName != "" || p.Generation != 1 {
			t.Errorf("node %q, nominated %q, generation %d", p.Spec.NodeName, p.Status.NominatedNodeName, p.Generation)
		}
		if fmt.Sprint(p.Annotations, p.Labels) != "map[note:yes] map[app:y zone:z]" {
			t.Errorf("annotations and labels are %v %v", p.Annotations, p.Labels)
		}
		if len(p.Status.Conditions) != 1 {
			t.Fatalf("conditions are %v", p.Status.Conditions)
		}
		if c := p.Status.Conditions[0]; c.Type != corev1.PodScheduled || c.Status != corev1.ConditionTrue || c.Reason != "" || c.LastTransitionTime.IsZero() {
			t.Errorf("condition is %v", c)
		}
	}
}

func TestOfManyBindingsOneWins(t *testing.T) {
	s := newTestServer(t)
	s.pod("p", "x", "")
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			w := s.do("POST", testPods+"/p/binding", fmt.Sprintf(`{"metadata":{"name":"p"},"target":{"name":"n%d"}}`, i))
			switch w.Code {
			case http.StatusCreated:
				won.Add(1)
			case http.StatusConflict:
			default:
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d bindings succeeded", won.Load())
	}
}

func BenchmarkBinding(b *testing.B) {
	s := newTestServer(b)
	for i := range b.N {
		s.pod(fmt.Sprintf("p%d", i), "x", "")
	}
	var next atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			name := fmt.Sprintf("p%d", next.Add(1)-1)
			w := s.do("POST", testPods+"/"+name+"/binding", `{"metadata":{"name":"`+name+`"},"target":{"kind":"Node","name":"n"}}`)
			if w.Code != http.StatusCreated {
				b.Fatalf("%d %s", w.Code, w.Body)
			}
		}
	})
}
