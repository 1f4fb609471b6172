package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/journey"
)

// stages are all that there is between the request for the demo's Deployment and its pods' being ready, each with how often it is there at least.
var stages = map[string]int{
	"authentication": 1, "authorization": 1, "admission": 1, "validation": 1, "store": 1,
	"decide by deployment-controller": 1, "decide by replicaset-controller": 1,
	"schedule by kube-scheduler": 3, "bind by kube-scheduler": 3,
	"kubelet pickup by kubelet": 3, "volumes by kubelet": 3, "sandbox by kubelet": 3, "CNI by kubelet": 3, "image by kubelet": 3,
	"create by kubelet": 3, "start by kubelet": 3, "probes by kubelet": 3, "Ready by kubelet": 3,
}

// The journey of a Deployment has every stage, each within what caused it.
func journeyStages(s *testNamespace) {
	labels := map[string]string{"run": "nginx"}
	if _, err := s.api.AppsV1().Deployments(s.name).Create(s.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "nginx"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)),
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}}}}}, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	var tree journey.Tree
	missing := func() (out []string) {
		body, err := s.api.CoreV1().RESTClient().Get().AbsPath(journey.PathJourney).Param("resource", "deployments").Param("namespace", s.name).Param("name", "nginx").DoRaw(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		tree = journey.Tree{}
		if err := json.Unmarshal(body, &tree); err != nil {
			s.Fatalf("%v: %s", err, body)
		}
		there := map[string]int{}
		for _, root := range tree.Roots {
			root.Walk(func(n *journey.Node, _ int) { there[stageID(n)]++ })
		}
		for _, id := range slices.Sorted(maps.Keys(stages)) {
			if there[id] < stages[id] {
				out = append(out, fmt.Sprintf("%s: %d of %d", id, there[id], stages[id]))
			}
		}
		return out
	}
	var left []string
	s.await("all stages", func() bool { left = missing(); return len(left) == 0 || s.Context().Err() != nil })
	if len(left) > 0 {
		s.Fatalf("stages that are missing: %q", left)
	}
	// A status that is written because of several objects at once may stand beside the tree of the request.
	if len(tree.Roots) == 0 || !tree.Whole || tree.Ready.IsZero() {
		s.Errorf("%d roots, whole %v, ready at %v", len(tree.Roots), tree.Whole, tree.Ready)
	}
	verdicts := 0
	for _, root := range tree.Roots {
		root.Walk(func(n *journey.Node, _ int) {
			if stageID(n) == "schedule by kube-scheduler" && n.Attribute(journey.AboutNode+nodeName) == "the only one that fits" {
				verdicts++
			}
			for _, c := range n.Children {
				if c.Start.Before(n.Start) || c.Until.After(n.Until) {
					s.Errorf("%s of %s, from %v to %v, is not within its cause, %s of %s, from %v to %v", stageID(c), c.Name, c.Start, c.Until, stageID(n), n.Name, n.Start, n.Until)
				}
				if c.Stage == journey.CNI && (n.Stage != journey.Sandbox || c.End().After(n.End())) {
					s.Errorf("CNI is within %s", stageID(n))
				}
			}
		})
	}
	if verdicts < 3 {
		s.Errorf("%d verdicts of the scheduler about %s", verdicts, nodeName)
	}
}

func stageID(n *journey.Node) string {
	if n.Kind == journey.KindWork {
		return n.Stage + " by " + n.Component
	}
	id, _, _ := strings.Cut(n.Stage, "/") // admission has a stage for each plugin
	return id
}
