package ttl

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
)

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		says  string
		count int
		want  string // the annotation after it; empty if unchanged
	}{
		{"", 1, "0"}, {"0", 1, ""}, {"nonsense", 1, "0"}, {"15", 1, "0"},
		{"0", 100, ""}, {"", 100, "0"}, {"0", 101, "15"}, {"15", 95, ""}, {"15", 89, "0"},
		{"15", 500, ""}, {"15", 501, "30"}, {"30", 1001, "60"}, {"60", 2001, "300"}, {"300", 1800, ""}, {"300", 1799, "60"}, {"", 150_000, "300"},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u"}}
		if c.says != "" {
			node.Annotations = map[string]string{"node.alpha.kubernetes.io/ttl": c.says}
		}
		d := decide(node, c.count)
		if c.want == "" {
			if len(d.Actions) != 0 {
				t.Errorf("%d nodes, %q: %v", c.count, c.says, d.Actions)
			}
			continue
		}
		if got := fmt.Sprint(d.Actions); len(d.Actions) != 1 || !strings.Contains(got, `"node.alpha.kubernetes.io/ttl":"`+c.want+`"`) {
			t.Errorf("%d nodes, %q: %s, not %s", c.count, c.says, got, c.want)
		}
	}
}

// New nodes are annotated, and corrected when the annotation is changed.
func TestNodesAreAnnotated(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, New)
	nodes := server.Client().CoreV1().Nodes()
	node, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	says := func(want string) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			if node, err = nodes.Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			if node.Annotations[corev1.ObjectTTLAnnotationKey] != want {
				return "an annotation"
			}
			return ""
		})
	}
	says("0")
	node.Annotations[corev1.ObjectTTLAnnotationKey] = "7"
	if _, err := nodes.Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	says("0")
}
