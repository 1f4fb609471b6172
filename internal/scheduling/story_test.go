package scheduling_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"skiff/internal/scheduling"
)

var update = flag.Bool("update", false, "write what is said into the story files")

// TestStories runs testdata/*.txt. A story is a cluster in a few lines, a question and, below the dashes, the answer:
//
//	node NAME cpu=4 memory=8Gi pods=110 labels=a=b,c=d zone=z1 taints=k=v:NoSchedule images=nginx:1=150Mi features=F unschedulable
//	pod NAME on=NODE in=NAMESPACE labels=… cpu=500m memory=1Gi port=80 image=nginx:1 priority=5 selector=disk=ssd gate=wait waits=5s
//	  affinity: …                        (indented: more of the spec)
//	namespace NAME labels=…              workload NAMESPACE selector=…  (pods of one workload are spread)
//	then add|change|delete node|pod|… …  (what happens later)
//	claim, volume, class, csinode, csidriver, capacity, attachment … (see storyStorage); a pod has claims=a,b
//	resourceclaim, deviceclass, devices … (see storyDevices); a pod has resourceclaims=a,b
//	reserve POD on=NODE | release POD | filter POD [by=PLUGIN] | score POD by=PLUGIN | wake POD by=PLUGIN | admit POD | queue | profile | policy
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no stories", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { playFile(t, file) })
	}
}

func playFile(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, text := range strings.Split(strings.TrimSpace(string(data)), "\n\n") {
		given, want, asks := strings.Cut(text+"\n", "\n----\n")
		if !asks {
			t.Fatalf("no question in:\n%s", text)
		}
		want = strings.TrimRight(want, "\n")
		got := strings.TrimRight(play(t, given), "\n")
		if !*update && got != want {
			t.Errorf("%s\n---- is answered\n%s\n---- not\n%s", given, got, want)
		}
		out = append(out, given+"\n----\n"+got)
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *story) profileOf() *scheduling.Profile {
	var config schedv1.KubeSchedulerProfile
	if err := yaml.UnmarshalStrict([]byte(s.config.String()), &config); err != nil {
		s.t.Fatal(err)
	}
	p, err := scheduling.NewProfile(config)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s *story) snapshot() *scheduling.Snapshot {
	var nodes []*scheduling.Node
	for _, n := range s.nodes {
		node := scheduling.NewNode(n)
		for _, p := range s.pods {
			if p.Spec.NodeName == n.Name {
				node = node.With(scheduling.NewPod(p))
			}
		}
		nodes = append(nodes, node)
	}
	return scheduling.NewSnapshot(s.workloads).WithStorage(&s.storage).WithDevices(&s.devices).WithNamespaces(s.namespaces).Update(nodes, nil)
}

func (s *story) find(name string) *scheduling.Pod {
	i := slices.IndexFunc(s.pods, func(p *corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		s.t.Fatalf("no pod %s", name)
	}
	return scheduling.NewPod(s.pods[i])
}

func (s *story) filter(name, by string) string {
	snapshot, pod := s.snapshot(), s.find(name)
	said := map[string]string{}
	for _, plugin := range s.profileOf().Filters {
		if by != "" && plugin.Name() != by {
			continue
		}
		prepared := plugin.PreFilter(pod, snapshot)
		for _, n := range snapshot.Nodes() {
			status := prepared.Status
			if status == nil && prepared.Check != nil {
				status = prepared.Check.Filter(n)
			}
			if status != nil && said[n.Name] == "" {
				said[n.Name] = fmt.Sprintf("%s: %s", status.Plugin, status.Message())
				if status.Code == scheduling.UnschedulableAndUnresolvable {
					said[n.Name] += " (whatever pods go away)"
				}
			}
		}
	}
	var b strings.Builder
	for _, n := range s.nodes {
		if said[n.Name] == "" {
			said[n.Name] = "fits"
		}
		fmt.Fprintf(&b, "%s: %s\n", n.Name, said[n.Name])
	}
	return b.String()
}

func (s *story) score(name, by string) string {
	snapshot, pod := s.snapshot(), s.find(name)
	var b strings.Builder
	for _, plugin := range s.profileOf().Scores {
		if plugin.Name() != by {
			continue
		}
		scorer, status := plugin.PreScore(pod, snapshot, snapshot.Nodes())
		if scorer == nil {
			return strings.TrimSpace("has nothing to say " + status.Message())
		}
		nodes := snapshot.Nodes()
		scores := make([]int64, len(nodes))
		scorer.Score(nodes, scores)
		scorer.Normalize(nodes, scores)
		for _, n := range s.nodes {
			i := slices.IndexFunc(nodes, func(other *scheduling.Node) bool { return other.Name == n.Name })
			fmt.Fprintf(&b, "%s: %d\n", n.Name, scores[i])
		}
	}
	return b.String()
}

func (s *story) wake(name, by string) string {
	pod := s.find(name)
	var b strings.Builder
	profile := s.profileOf()
	var plugins []scheduling.Plugin
	for _, p := range profile.Filters {
		plugins = append(plugins, p)
	}
	for _, p := range profile.PreEnqueues {
		plugins = append(plugins, p)
	}
	for _, e := range s.events {
		answer := "sleeps on"
		for _, p := range plugins {
			if p.Name() == by && slices.ContainsFunc(p.EventsToRegister(), func(i scheduling.EventWithHint) bool { return i.MayHelp(pod, e.Event) }) {
				answer = "is woken"
			}
		}
		fmt.Fprintf(&b, "%s: %s\n", e.words, answer)
	}
	return b.String()
}

func (s *story) admit(name string) string {
	for _, g := range s.profileOf().PreEnqueues {
		if status := g.PreEnqueue(s.find(name)); status != nil {
			return fmt.Sprintf("%s: %s\n", status.Plugin, status.Message())
		}
	}
	return "may be scheduled\n"
}

// queue lists the pods in the order they are scheduled; waits is how long each has been in the queue.
func (s *story) queue() string {
	var list []*scheduling.Pod
	for _, p := range s.pods {
		list = append(list, scheduling.NewPod(p))
	}
	now, sort := time.Unix(1e9, 0), s.profileOf().QueueSort
	slices.SortStableFunc(list, func(a, b *scheduling.Pod) int {
		if sort.Less(a, now.Add(-s.waits[a.Name]), b, now.Add(-s.waits[b.Name])) {
			return -1
		}
		return 1
	})
	var b strings.Builder
	for _, p := range list {
		fmt.Fprintln(&b, p.Name)
	}
	return b.String()
}

// profile prints the plugins of a configuration.
func (s *story) profile(kind, config string) string {
	var p *scheduling.Profile
	var err error
	if kind == "policy" {
		p, err = scheduling.NewPolicyProfile("default-scheduler", []byte(config))
	} else {
		var c schedv1.KubeSchedulerProfile
		if err := yaml.UnmarshalStrict([]byte(config), &c); err != nil {
			s.t.Fatal(err)
		}
		p, err = scheduling.NewProfile(c)
	}
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "filters:")
	for _, f := range p.Filters {
		fmt.Fprintf(&b, " %s", f.Name())
	}
	fmt.Fprintf(&b, "\nscores:")
	for _, w := range p.Scores {
		fmt.Fprintf(&b, " %s=%d", w.Name(), w.Weight)
	}
	fmt.Fprintf(&b, "\ngates: %d, queue sorted by %s, then %s, bound by %s\n", len(p.PreEnqueues), p.QueueSort.Name(), strings.Join(p.PostFilters, " "), strings.Join(p.Binders, " "))
	return b.String()
}
