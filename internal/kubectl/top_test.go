package kubectl

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/skifftest"
)

// kubectl top prints what nodes and pods use, as with metrics-server.
func TestTop(t *testing.T) {
	s := skifftest.Start(t, skifftest.WithControllers(), skifftest.WithHollowNodes(2))
	term := newTerminal(t, "--kubeconfig="+s.Kubeconfig())
	term.must("create", "namespace", "shop")
	pod := func(namespace, name, node, app string, annotations map[string]string, requests ...string) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}, Annotations: annotations},
			Spec: corev1.PodSpec{NodeName: node}}
		for i, text := range requests {
			cpu, memory, _ := strings.Cut(text, " ")
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Image: "nginx",
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}})
		}
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			_, err := s.Client().CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{})
			if err == nil {
				break
			}
			if time.Now().After(deadline) { // the service account of a new namespace comes a moment later
				t.Fatal(err)
			}
		}
	}
	pod("default", "web", "hollow-0", "web", nil, "250m 64Mi", "1500m 1Gi")
	pod("default", "db", "hollow-1", "db", map[string]string{"hollow.skiff/cpu": "3", "hollow.skiff/memory": "16Gi"}, "100m 128Mi")
	pod("shop", "web", "hollow-0", "web", nil, "50m 2Gi")
	for deadline := time.Now().Add(30 * time.Second); strings.Count(term.must("get", "pods", "-A", "--no-headers"), "Running") < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(term.must("get", "pods", "-A"))
		}
	}
	stories(t, "testdata/top.txt", func(input string) string {
		var out strings.Builder
		for line := range strings.Lines(input) {
			stdout, stderr, failure := term.all(words(strings.TrimPrefix(line, "kubectl "))...)
			for text := range strings.Lines(stdout + stderr + failure) {
				fmt.Fprintln(&out, strings.TrimRight(text, " \n"))
			}
		}
		return out.String()
	})
	if text := term.must("explain", "podmetrics.containers.usage"); !strings.Contains(text, "The memory usage is the memory working set.") {
		t.Errorf("explain: %s", text)
	}
}
