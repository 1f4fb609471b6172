package scheduler

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A story is a text file of paragraphs: commands, one line each, then "----", then the expected output. Lines that begin with # are comments.

// runStories runs each story file of a folder: run gets a paragraph's lines one by one and returns the output of each.
func runStories(t *testing.T, dir string, begin func(t *testing.T, story func(t *testing.T, run func(line string) string))) {
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories in %s: %v", dir, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			begin(t, func(t *testing.T, run func(string) string) {
				at := 0
				for _, paragraph := range strings.Split(string(data), "\n\n") {
					from := at + 1
					at += strings.Count(paragraph, "\n") + 2
					commands, want, _ := strings.Cut("\n"+paragraph, "\n----")
					var seen strings.Builder
					for _, line := range strings.Split(commands, "\n") {
						if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
							if s := run(line); s != "" {
								seen.WriteString(s + "\n")
							}
						}
					}
					if got, want := strings.TrimSpace(seen.String()), strings.TrimSpace(want); got != want {
						t.Fatalf("%s:%d: after\n%s\n\nis to be seen:\n%s\n\nbut it is:\n%s", file, from, strings.TrimSpace(commands), want, got)
					}
				}
			})
		})
	}
}

// words splits a line into its words and its settings, which are words with a "=".
func words(line string) (plain []string, settings map[string]string) {
	settings = map[string]string{}
	for _, w := range strings.Fields(line) {
		if name, value, ok := strings.Cut(w, "="); ok {
			settings[name] = value
		} else {
			plain = append(plain, w)
		}
	}
	return plain, settings
}

// pairs parses "a:b,c:d".
func pairs(s string) map[string]string {
	if s == "" {
		return nil
	}
	m := map[string]string{}
	for _, pair := range strings.Split(s, ",") {
		k, v, _ := strings.Cut(pair, ":")
		m[k] = v
	}
	return m
}

func amounts(settings map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range []string{"cpu", "memory", "pods"} {
		if amount, ok := settings[name]; ok {
			list[corev1.ResourceName(name)] = resource.MustParse(amount)
		}
	}
	return list
}

// uids numbers objects, so that each has its own uid.
var uids int

// podOf returns the pod of a line.
func podOf(name string, settings map[string]string) *corev1.Pod {
	uids++
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + strconv.Itoa(uids)), ResourceVersion: strconv.Itoa(uids), Labels: pairs(settings["labels"])},
		Spec: corev1.PodSpec{SchedulerName: defaultSchedulerName, NodeName: settings["node"], NodeSelector: pairs(settings["selector"]),
			Containers: []corev1.Container{{Name: "c", Image: "image:1", Resources: corev1.ResourceRequirements{Requests: amounts(settings)}}}},
		Status: corev1.PodStatus{NominatedNodeName: settings["nominated"]},
	}
	if s, ok := settings["scheduler"]; ok {
		p.Spec.SchedulerName = s
	}
	if s, ok := settings["priority"]; ok {
		n, err := strconv.ParseInt(s, 10, 32)
		if err != nil {
			panic(err)
		}
		priority := int32(n)
		p.Spec.Priority = &priority
	}
	if s, ok := settings["gate"]; ok {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: s}}
	}
	if s, ok := settings["tolerates"]; ok {
		p.Spec.Tolerations = []corev1.Toleration{{Key: s, Operator: corev1.TolerationOpExists}}
	}
	if s, ok := settings["port"]; ok {
		n, err := strconv.Atoi(s)
		if err != nil {
			panic(err)
		}
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: int32(n), ContainerPort: int32(n), Protocol: corev1.ProtocolTCP}}
	}
	if s, ok := settings["apart-from"]; ok { // required anti-affinity to pods with these labels, on one node
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: pairs(s)}, TopologyKey: corev1.LabelHostname}}}}
	}
	if s, ok := settings["together-with"]; ok {
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: &metav1.LabelSelector{MatchLabels: pairs(s)}, TopologyKey: corev1.LabelHostname}}}}
	}
	if settings["preempts"] == "never" {
		never := corev1.PreemptNever
		p.Spec.PreemptionPolicy = &never
	}
	return p
}

// nodeOf returns the node of a line.
func nodeOf(name string, settings map[string]string) *corev1.Node {
	uids++
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + strconv.Itoa(uids)), ResourceVersion: strconv.Itoa(uids), Labels: pairs(settings["labels"])}}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelHostname] = name
	if zone, ok := settings["zone"]; ok {
		n.Labels[corev1.LabelTopologyZone] = zone
	}
	for _, s := range []struct{ name, otherwise string }{{"cpu", "4"}, {"memory", "8Gi"}, {"pods", "110"}} {
		if _, ok := settings[s.name]; !ok {
			settings[s.name] = s.otherwise
		}
	}
	n.Status.Allocatable = amounts(settings)
	for key, effect := range pairs(settings["taint"]) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffect(effect)})
	}
	n.Spec.Unschedulable = settings["cordoned"] == "yes"
	return n
}

// unknown fails on a line that is no command.
func unknown(line string) string { return fmt.Sprintf("nobody understands %q", line) }
