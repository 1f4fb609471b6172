package eviction

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func pod(name string, priority int32, memory string) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Priority: &priority, Containers: []corev1.Container{{Name: "c"}}}}
	p.Name = name
	if memory != "" {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
	return p
}

func TestMet(t *testing.T) {
	fine := Amount{Available: 50 << 30, Capacity: 100 << 30}
	for name, test := range map[string]struct {
		change func(*Signals)
		want   corev1.ResourceName
	}{
		"nothing":                           {func(*Signals) {}, ""},
		"memory":                            {func(s *Signals) { s.Memory.Available = 99 << 20 }, corev1.ResourceMemory},
		"disk":                              {func(s *Signals) { s.NodeDisk.Available = 1 << 30 }, corev1.ResourceEphemeralStorage},
		"images":                            {func(s *Signals) { s.ImageDisk.Available = 1 << 30 }, corev1.ResourceEphemeralStorage},
		"a large disk, used by others":      {func(s *Signals) { s.NodeDisk.Available = 4 << 30 }, ""},
		"a small disk with a little left":   {func(s *Signals) { s.NodeDisk = Amount{2 << 30, 10 << 30} }, ""},
		"a small disk with too little left": {func(s *Signals) { s.NodeDisk = Amount{100 << 20, 10 << 30} }, corev1.ResourceEphemeralStorage},
		"inodes":                            {func(s *Signals) { s.NodeInodes.Available = 4 << 30 }, Inodes},
		"pids":                              {func(s *Signals) { s.PIDs.Available = 1 }, PIDs},
		"unknown":                           {func(s *Signals) { s.Memory = Amount{} }, ""},
	} {
		s := Signals{Memory: fine, NodeDisk: fine, ImageDisk: fine, NodeInodes: fine, ImageInodes: fine, PIDs: Amount{30000, 32768}}
		test.change(&s)
		got := Default.Met(s)
		if test.want == "" && len(got) > 0 || test.want != "" && (len(got) != 1 || got[0].Resource != test.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// Who uses more than it asked for goes first, the less important before the more important, the greediest first.
func TestRank(t *testing.T) {
	const mi = 1 << 20
	list := []Usage{
		{Pod: pod("modest", 0, "100Mi"), Used: 90 * mi}, {Pod: pod("important", 1000, ""), Used: 900 * mi}, {Pod: pod("greedy", 0, "100Mi"), Used: 300 * mi},
		{Pod: pod("greedier", 0, ""), Used: 300 * mi}, {Pod: pod("critical", 2_000_000_000, ""), Used: 9000 * mi},
	}
	var got []string
	for _, u := range Rank(corev1.ResourceMemory, list) {
		got = append(got, u.Pod.Name)
	}
	if want := []string{"greedier", "greedy", "important", "modest"}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}

func TestMessage(t *testing.T) {
	s := Shortage{Resource: corev1.ResourceMemory, Threshold: resource.NewQuantity(100<<20, resource.BinarySI), Available: resource.NewQuantity(50<<20, resource.BinarySI)}
	got := Message(s, Usage{Pod: pod("p", 0, "10Mi"), Used: 1 << 30, Containers: map[string]int64{"c": 1 << 30}})
	want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container c was using 1Gi, request is 10Mi, has larger consumption of memory. "
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestExceeded(t *testing.T) {
	p := pod("p", 0, "")
	if Limited(p) {
		t.Error("a pod without limits is limited")
	}
	limit := resource.MustParse("1Mi")
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: &limit}}}}
	if !Limited(p) || Exceeded(p, Disk{Volumes: map[string]int64{"v": 1 << 20}}) != "" || !strings.HasPrefix(Exceeded(p, Disk{Volumes: map[string]int64{"v": 2 << 20}}), `Usage of EmptyDir volume "v" exceeds the limit "1Mi"`) {
		t.Error("the limit of a volume is not kept")
	}
	p.Spec.Volumes = nil
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("1Mi")}
	if got := Exceeded(p, Disk{Containers: map[string]int64{"c": 2 << 20}}); !strings.HasPrefix(got, "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi") {
		t.Errorf("got %q", got)
	}
}
