package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/scheduling"
)

// defaultProfiles returns the default profile and its plugins' numbers.
func defaultProfiles(t testing.TB, own scheduling.PreEnqueuePlugin) (map[string]*profile, *numbering) {
	t.Helper()
	config, err := DefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	plugins := &numbering{}
	if own == nil {
		own = &evictions{}
	}
	p, err := newProfile(config.Profiles[0], 0, plugins, own, nil)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*profile{defaultSchedulerName: p}, plugins
}

// queueStory is a queue and the objects of a story. Time passes only by commands.
type queueStory struct {
	*queue
	evictions *evictions
	plugins   *numbering
	began     time.Time
	pods      map[string]*corev1.Pod // pending pods
	assigned  map[string]*corev1.Pod
	nodes     map[string]*corev1.Node
}

func TestQueueStories(t *testing.T) {
	runStories(t, "queue", func(t *testing.T, story func(*testing.T, func(string) string)) {
		synctest.Test(t, func(t *testing.T) {
			own := &evictions{running: map[types.UID]*eviction{}, isAlive: func(*scheduling.Pod) bool { return true }}
			profiles, plugins := defaultProfiles(t, own)
			q := newQueue(profiles, profiles[defaultSchedulerName].QueueSort, time.Second, 10*time.Second, maxUnschedulable)
			go q.run(t.Context())
			s := &queueStory{queue: q, evictions: own, plugins: plugins, began: time.Now(), pods: map[string]*corev1.Pod{}, assigned: map[string]*corev1.Pod{}, nodes: map[string]*corev1.Node{}}
			story(t, s.run)
		})
	})
}

func (s *queueStory) run(line string) string {
	plain, settings := words(line)
	switch name := plain[len(plain)-1]; plain[0] {
	case "pod": // is added or changes
		old := s.pods[name]
		pod := podOf(name, settings)
		s.pods[name] = pod
		if old == nil {
			s.add(scheduling.NewPod(pod))
		} else {
			pod.UID = old.UID
			s.update(pod)
		}
	case "next": // is popped
		s.mu.Lock()
		s.flushBackoff(time.Now())
		none := s.active.Len()+s.backoff.Len() == 0
		s.mu.Unlock()
		if none {
			return "nobody"
		}
		p := s.pop()
		return fmt.Sprintf("%s, attempt %d", p.Name, p.attempts)
	case "refused": // the pod in flight is refused
		set := pluginSet(0)
		for _, plugin := range strings.Split(settings["by"], ",") {
			bit, ok := s.plugins.bits[plugin]
			if !ok {
				return "no plugin is called " + plugin
			}
			set |= bit
		}
		pod := s.inFlight.Pod
		if s.pods[name] != nil {
			pod = scheduling.NewPod(s.pods[name])
		}
		s.addUnschedulable(s.inFlight, pod, set, settings["nominated"])
	case "error":
		s.addUnschedulable(s.inFlight, scheduling.NewPod(s.pods[name]), 0, "")
	case "bound":
		s.done(s.inFlight)
		delete(s.pods, name)
	case "gone":
		s.remove(scheduling.NewPod(s.pods[name]))
		delete(s.pods, name)
	case "evicting": // victims of the pod are being evicted
		s.evictions.running[s.pods[name].UID] = &eviction{}
	case "evicted":
		delete(s.evictions.running, s.pods[name].UID)
		s.gateOpened(key(scheduling.NewPod(s.pods[name])))
	case "activate":
		s.activate(key(scheduling.NewPod(s.pods[name])))
	case "wait":
		d, err := time.ParseDuration(name)
		if err != nil {
			return err.Error()
		}
		time.Sleep(d)
		synctest.Wait()
	case "node": // is added or changes
		old, node := s.nodes[name], nodeOf(name, settings)
		s.nodes[name] = node
		if old == nil {
			s.onEvent(scheduling.Event{Kind: scheduling.NodeKind, Action: scheduling.Add, NewNode: node}, nil)
		} else if action := scheduling.NodeUpdate(old, node); action != 0 {
			s.onEvent(scheduling.Event{Kind: scheduling.NodeKind, Action: action, OldNode: old, NewNode: node}, nil)
		}
	case "assigned": // a pod on a node is added or changes
		old, pod := s.assigned[name], podOf(name, settings)
		s.assigned[name] = pod
		if old == nil {
			s.onEvent(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Add, NewPod: scheduling.NewPod(pod)}, nil)
		} else {
			before, after := scheduling.NewPod(old), scheduling.NewPod(pod)
			s.onEvent(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.PodUpdate(before, after), OldPod: before, NewPod: after}, nil)
		}
	case "deleted":
		s.onEvent(scheduling.Event{Kind: scheduling.AssignedPod, Action: scheduling.Delete, OldPod: scheduling.NewPod(s.assigned[name])}, nil)
		delete(s.assigned, name)
	case "show":
		return s.show()
	default:
		return unknown(line)
	}
	return ""
}

// show prints where each pod is.
func (s *queueStory) show() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flushBackoff(time.Now())
	var lines []string
	pods := slices.SortedFunc(maps.Values(s.queue.pods), func(a, b *queuedPod) int { return compareNames(a.Pod, b.Pod) })
	for _, p := range pods {
		line := fmt.Sprintf("%s: %s", p.Name, p.place)
		switch p.place {
		case backoff, errorBackoff:
			line += fmt.Sprintf(" until %v", s.backoffExpiry(p).Sub(s.began))
		case unschedulable:
			line += fmt.Sprintf(", refused by %s", strings.Join(s.plugins.list(p.refusedBy), ","))
			if p.gate != 0 {
				line = fmt.Sprintf("%s: gated by %s", p.Name, strings.Join(s.plugins.list(p.gate), ","))
			}
		}
		if node := s.nominees.nodeOf[p.UID]; node != "" {
			line += ", nominated for " + node
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return "nobody"
	}
	return strings.Join(lines, "\n")
}
