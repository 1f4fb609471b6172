package apiserver_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rows tells a table's first cells, and the names of the objects that come with them if they are others.
func rows(t *testing.T, a answer) string {
	t.Helper()
	var got []string
	for _, row := range into[metav1.Table](a.ok()).Rows {
		line := fmt.Sprint(row.Cells[0])
		if row.Object.Raw != nil {
			if name := into[metav1.PartialObjectMetadata](answer{t: t, Body: row.Object.Raw}).Name; name != line {
				line += " of " + name
			}
		}
		got = append(got, line)
	}
	return strings.Join(got, ", ")
}

const asTable = "application/json;as=Table;g=meta.k8s.io;v=v1"

// Which storage class is the default shows only where all are seen.
func TestTableMarksDefaultClass(t *testing.T) {
	const path = "/apis/storage.k8s.io/v1/storageclasses"
	s := start(t)
	class := func(name, annotation, value string) {
		s.send("POST", path, object{"metadata": object{"name": name, "annotations": object{annotation: value}, "labels": object{"table": "yes"}}, "provisioner": "example.com/p"}).ok()
	}
	class("d", "example.com/other", "true")
	class("c", "storageclass.kubernetes.io/is-default-class", "true")
	class("e", "storageclass.kubernetes.io/is-default-class", "false")
	table := func(query string) string { return rows(t, s.send("GET", path+query, nil, "Accept", asTable)) }
	if got, want := table("?labelSelector=table"), "c (default) of c, d, e"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	class("b", "storageclass.beta.kubernetes.io/is-default-class", "true") // the last, or the first by name
	for query, want := range map[string]string{
		"?labelSelector=table":                      "b (default) of b, c, d, e",
		"?labelSelector=table&includeObject=Object": "b (default) of b, c, d, e",
		"?labelSelector=table&includeObject=None":   "b (default), c, d, e",
		"?fieldSelector=metadata.name%3Dc":          "c (default) of c",
		"?labelSelector=table&limit=1":              "b (default) of b",
		"/b":                                        "b",
		"?labelSelector=nothing":                    "",
	} {
		if got := table(query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// Flow schemas are shown in the order in which requests are compared with them.
func TestTableSortsFlowSchemas(t *testing.T) {
	const path = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
	s := start(t)
	for name, precedence := range map[string]int{"a": 300, "b": 100, "c": 300, "d": 200} {
		s.send("POST", path, object{"metadata": object{"name": name, "labels": object{"table": "yes"}},
			"spec": object{"matchingPrecedence": precedence, "priorityLevelConfiguration": object{"name": "workload-low"}}}).ok()
	}
	if got, want := rows(t, s.send("GET", path+"?labelSelector=table", nil, "Accept", asTable)), "b, d, a, c"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := rows(t, s.send("GET", path, nil, "Accept", asTable)), "exempt, probes, "; !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s first", got, want)
	}
}
