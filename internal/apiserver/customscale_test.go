package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The first scale of an object without replicas sets them, as kubectl scale does with prometheus-operator's shards; only a read is refused.
func TestScaleOfCustomObjectWithoutReplicas(t *testing.T) {
	s := start(t)
	s.define(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"fleets.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"fleets","kind":"Fleet"},"versions":[{"name":"v1","served":true,"storage":true,
		"subresources":{"scale":{"specReplicasPath":".spec.ships","statusReplicasPath":".status.ships"}},
		"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"ships":{"type":"integer"}}},"status":{"type":"object","properties":{"ships":{"type":"integer"}}}}}}}]}}`)
	const fleets = "/apis/example.com/v1/namespaces/default/fleets"
	s.send("POST", fleets, `{"apiVersion":"example.com/v1","kind":"Fleet","metadata":{"name":"a"}}`).ok()
	read := s.send("GET", fleets+"/a/scale", nil).refused(500, metav1.StatusReasonInternalError)
	if want := `the spec replicas field ".spec.ships" does not exist`; !strings.HasSuffix(read.Message, want) {
		t.Errorf("read: %s", read.Message)
	}
	empty := s.send("PATCH", fleets+"/a/scale", `{"metadata":{}}`, "Content-Type", "application/merge-patch+json").refused(400, metav1.StatusReasonBadRequest)
	if want := `the spec replicas field ".spec.ships" cannot be empty`; empty.Message != want {
		t.Errorf("empty: %s", empty.Message)
	}
	scale := into[object](s.send("PATCH", fleets+"/a/scale", `{"spec":{"replicas":2}}`, "Content-Type", "application/merge-patch+json").ok())
	if got := fmt.Sprint((*scale)["spec"]); got != "map[replicas:2]" {
		t.Errorf("patched: %s", got)
	}
	if got := fmt.Sprint((*into[object](s.send("GET", fleets+"/a", nil).ok()))["spec"]); got != "map[ships:2]" {
		t.Errorf("object: %s", got)
	}
}
