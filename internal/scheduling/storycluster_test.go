package scheduling_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"skiff/internal/scheduling"
)

// story is the cluster of a story.
type story struct {
	t          *testing.T
	nodes      []*corev1.Node
	pods       []*corev1.Pod
	waits      map[string]time.Duration
	namespaces map[string]labels.Set
	workloads  workloadList
	storage    storyStorage
	devices    storyDevices
	events     []laterEvent
	config     strings.Builder // of profile or policy
}

// laterEvent is a "then" line: something that happens later.
type laterEvent struct {
	words string
	scheduling.Event
}

type workloadList map[string]labels.Selector

func (w workloadList) DefaultSelector(p *corev1.Pod) labels.Selector {
	if s := w[p.Namespace]; s != nil && s.Matches(labels.Set(p.Labels)) {
		return s
	}
	return labels.SelectorFromSet(nil)
}

func play(t *testing.T, text string) string {
	s := &story{t: t, waits: map[string]time.Duration{}, namespaces: map[string]labels.Set{}, workloads: workloadList{}}
	var answer strings.Builder
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		var more []string
		for i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  ") {
			i++
			more = append(more, lines[i])
		}
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			answer.WriteString(s.tell(words, strings.Join(more, "\n")))
		}
	}
	return answer.String()
}

func (s *story) tell(words []string, more string) string {
	switch words[0] {
	case "node":
		s.nodes = append(s.nodes, s.node(words[1:]))
	case "pod":
		s.pods = append(s.pods, s.pod(words[1:], more))
	case "namespace":
		s.namespaces[words[1]] = set(options(words[2:])["labels"])
	case "workload":
		s.workloads[words[1]] = labels.SelectorFromSet(set(options(words[2:])["selector"]))
	case "then":
		s.later(words, more)
	case "filter":
		return s.filter(words[1], options(words[2:])["by"])
	case "score":
		return s.score(words[1], options(words[2:])["by"])
	case "wake":
		return s.wake(words[1], options(words[2:])["by"])
	case "admit":
		return s.admit(words[1])
	case "reserve":
		return s.reserve(words[1], options(words[2:])["on"])
	case "release":
		return s.release(words[1])
	case "queue":
		return s.queue()
	case "profile", "policy":
		return s.profile(words[0], more)
	case "args":
		s.config.WriteString(more)
	default:
		made := s.storage.tell(words, more)
		if made == nil {
			made = s.devices.tell(words, more)
		}
		switch made := made.(type) {
		case nil:
			s.t.Fatalf("no story begins with %q", words[0])
		case error:
			s.t.Fatal(made)
		}
	}
	return ""
}

func options(words []string) map[string]string {
	m := map[string]string{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		m[key] = value
	}
	return m
}

func set(text string) labels.Set {
	m := labels.Set{}
	for _, pair := range strings.Split(text, ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			m[key] = value
		}
	}
	return m
}

func quantities(o map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for key, value := range o {
		switch {
		case key == "cpu" || key == "memory" || key == "pods" || strings.Contains(key, ".example/"):
			list[corev1.ResourceName(key)] = resource.MustParse(value)
		case key == "storage":
			list[corev1.ResourceEphemeralStorage] = resource.MustParse(value)
		}
	}
	return list
}

func (s *story) node(words []string) *corev1.Node {
	o := options(words[1:])
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: words[0], Labels: set(o["labels"])}}
	n.Labels[corev1.LabelHostname] = n.Name
	if zone, ok := o["zone"]; ok {
		n.Labels[corev1.LabelTopologyZone] = zone
	}
	if features, ok := o["features"]; ok {
		n.Status.DeclaredFeatures = strings.Split(features, ",")
	}
	_, n.Spec.Unschedulable = o["unschedulable"]
	n.Status.Allocatable = quantities(o)
	if _, ok := o["pods"]; !ok {
		n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("110")
	}
	for name, size := range set(o["images"]) {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{name}, SizeBytes: ptrTo(resource.MustParse(size)).Value()})
	}
	for _, taint := range strings.Split(o["taints"], ",") {
		if rest, effect, ok := strings.Cut(taint, ":"); ok {
			key, value, _ := strings.Cut(rest, "=")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		}
	}
	return n
}

func ptrTo[T any](v T) *T { return &v }

func (s *story) pod(words []string, more string) *corev1.Pod {
	o := options(words[1:])
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: words[0], Namespace: "default", UID: types.UID(words[0]), Labels: set(o["labels"])}}
	if ns, ok := o["in"]; ok {
		p.Namespace = ns
	}
	c := corev1.Container{Name: "c", Image: o["image"], Resources: corev1.ResourceRequirements{Requests: quantities(o)}}
	if port, ok := o["port"]; ok {
		n, err := strconv.Atoi(port)
		if err != nil {
			s.t.Fatal(err)
		}
		c.Ports = []corev1.ContainerPort{{HostPort: int32(n), HostIP: o["ip"], Protocol: corev1.Protocol(o["protocol"])}}
	}
	p.Spec = corev1.PodSpec{NodeName: o["on"], Containers: []corev1.Container{c}}
	if selector, ok := o["selector"]; ok {
		p.Spec.NodeSelector = set(selector)
	}
	if gate, ok := o["gate"]; ok {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: gate}}
	}
	if priority, ok := o["priority"]; ok {
		n, err := strconv.Atoi(priority)
		if err != nil {
			s.t.Fatal(err)
		}
		p.Spec.Priority = ptrTo(int32(n))
	}
	if waits, ok := o["waits"]; ok {
		d, err := time.ParseDuration(waits)
		if err != nil {
			s.t.Fatal(err)
		}
		s.waits[p.Name] = d
	}
	for i, claim := range strings.Split(o["claims"], ",") {
		if claim != "" {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v" + strconv.Itoa(i), VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		}
	}
	for _, claim := range strings.Split(o["resourceclaims"], ",") {
		if claim != "" {
			p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
		}
	}
	if _, ok := o["deleted"]; ok {
		p.DeletionTimestamp = &metav1.Time{}
	}
	if err := yaml.UnmarshalStrict([]byte(more), &p.Spec); err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *story) later(words []string, more string) {
	e := laterEvent{words: strings.Join(words[1:], " ")}
	find := func(name string) (old *corev1.Pod) {
		if i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == name }); i >= 0 {
			old = s.pods[i]
		}
		return old
	}
	if _, ok := deviceKinds[words[2]]; ok {
		e.Event = s.devices.later(words[1:], more)
		s.events = append(s.events, e)
		return
	}
	if _, ok := storageKinds[words[2]]; ok {
		e.Event = s.storage.later(words[1:], more)
		s.events = append(s.events, e)
		return
	}
	if words[2] == "node" {
		e.Kind = scheduling.NodeKind
		if i := slices.IndexFunc(s.nodes, func(n *corev1.Node) bool { return n.Name == words[3] }); i >= 0 {
			e.OldNode = s.nodes[i]
		}
		if words[1] != "delete" {
			e.NewNode = s.node(words[3:])
		}
	} else {
		if old := find(words[3]); old != nil {
			e.OldPod = scheduling.NewPod(old)
		}
		if words[1] != "delete" {
			e.NewPod = scheduling.NewPod(s.pod(words[3:], more))
		}
		if e.OldPod != nil && e.OldPod.Spec.NodeName == "" {
			e.Kind = scheduling.TargetPod
		}
	}
	switch {
	case words[1] == "delete":
		e.Action = scheduling.Delete
	case words[1] == "add":
		e.Action = scheduling.Add
	case e.OldNode != nil:
		e.Action = scheduling.NodeUpdate(e.OldNode, e.NewNode)
	default:
		e.Action = scheduling.PodUpdate(e.OldPod, e.NewPod)
	}
	s.events = append(s.events, e)
}
