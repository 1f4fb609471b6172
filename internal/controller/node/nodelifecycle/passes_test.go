package nodelifecycle

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
	"skiff/internal/controller/node"
	"skiff/internal/controller/stories"
)

// TestPasses runs the stories in testdata/passes, which are about many nodes over time. A story begins with a title; lines change the nodes, "pass D" lets
// time pass, and what the monitor decides meanwhile is below. Decisions are carried out: statuses and taints change.
func TestPasses(t *testing.T) {
	files, err := filepath.Glob("testdata/passes/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var w *monitorStory
			var told []string
			for _, part := range strings.Split(strings.TrimSpace(string(data)), "\n\n") {
				above, want, told1 := strings.Cut(part, "\n----")
				if !told1 {
					told = append(told, part)
					continue
				}
				if strings.HasPrefix(above, "#") {
					w = newWorld(t)
				}
				got := w.tell(above)
				if want = strings.TrimSpace(want); got != want && !updating() {
					t.Errorf("%s\ngot:\n%s\nwant:\n%s", above, got, want)
				}
				told = append(told, above+"\n----\n"+got)
			}
			if updating() {
				if err := os.WriteFile(file, []byte(strings.Join(told, "\n\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func updating() bool { return flag.Lookup("update").Value.String() == "true" }

// monitorStory holds the nodes and leases that the monitor observes.
type monitorStory struct {
	t           *testing.T
	monitor     *monitor
	now, passed time.Time
	nodes       map[string]*corev1.Node
	leases      map[string]*coordinationv1.Lease // as in the cache
	live        map[string]*coordinationv1.Lease // as on the API server, if the cache lags
	stale       bool
	failStatus  map[string]bool
	failTaint   map[string]bool
	alive       []string // nodes that renew their leases
	quiet       bool     // does not print the Events of new nodes
	replaced    int
	told        []string
	versions    int
}

func newWorld(t *testing.T) *monitorStory {
	w := &monitorStory{t: t, now: stories.Epoch, nodes: map[string]*corev1.Node{}, leases: map[string]*coordinationv1.Lease{}, live: map[string]*coordinationv1.Lease{},
		failStatus: map[string]bool{}, failTaint: map[string]bool{}}
	w.restart()
	return w
}

func (w *monitorStory) restart() {
	s := settingsOf(controller.Config{})
	s.largeZone = 6
	w.monitor = newMonitor(s)
	w.passed = time.Time{}
}

func (w *monitorStory) tell(above string) string {
	w.told = nil
	for line := range strings.SplitSeq(above, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		switch words[0] {
		case "node":
			w.node(words[1], words[2], words[3:])
		case "replace":
			delete(w.nodes, words[1])
			w.replaced++
			w.node(words[1], words[2], words[3:])
		case "delete":
			delete(w.nodes, words[1])
		case "heartbeat":
			for _, name := range words[1:] {
				node.Ready(w.change(name)).LastHeartbeatTime = metav1.NewTime(w.now)
			}
		case "lease":
			w.renew(w.leases, words[1:])
		case "server-lease":
			w.renew(w.live, words[1:])
		case "caught-up":
			for name, l := range w.live {
				w.leases[name] = l
			}
			w.stale = false
		case "alive":
			w.alive = words[1:]
		case "quiet":
			w.quiet = true
		case "fail":
			w.failStatus[words[1]] = true
		case "fail-taint":
			w.failTaint[words[1]] = true
		case "restart":
			w.restart()
		case "pass":
			d, err := time.ParseDuration(words[1])
			if err != nil {
				w.t.Fatal(err)
			}
			w.pass(d)
		default:
			w.t.Fatalf("%q?", line)
		}
	}
	if len(w.told) == 0 {
		return "nothing"
	}
	return strings.Join(w.told, "\n")
}

// change returns a copy of a node that replaces it: observed objects do not change.
func (w *monitorStory) change(name string) *corev1.Node {
	w.versions++
	n := w.nodes[name].DeepCopy()
	n.ResourceVersion = fmt.Sprint(w.versions)
	w.nodes[name] = n
	return n
}

func (w *monitorStory) node(name, ready string, more []string) {
	if w.nodes[name] == nil {
		w.nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(fmt.Sprintf("uid-of-%s-%d", name, w.replaced)),
			CreationTimestamp: metav1.NewTime(w.now), Labels: map[string]string{}}}
	}
	n := w.change(name)
	for _, m := range more {
		if zone, ok := strings.CutPrefix(m, "zone="); ok {
			n.Labels[corev1.LabelTopologyZone] = zone
		} else {
			n.Labels[labelExcludeDisruption] = ""
		}
	}
	status := map[string]corev1.ConditionStatus{"ready": corev1.ConditionTrue, "notready": corev1.ConditionFalse}[ready]
	if status != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(w.now)},
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse},
			{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse}}
	}
}

func (w *monitorStory) renew(leases map[string]*coordinationv1.Lease, names []string) {
	for _, name := range names {
		now := metav1.NewMicroTime(w.now)
		leases[name] = &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &now}}
	}
}

// pass does what the loop's run does, second by second.
func (w *monitorStory) pass(d time.Duration) {
	for until := w.now.Add(d); ; w.now = w.now.Add(time.Second) {
		if w.now.Sub(w.passed) >= w.monitor.settings.period {
			w.renew(w.leases, w.alive)
			if !w.stale {
				w.passOnce()
			}
			w.passed = w.now
		}
		taints := w.monitor.toTaint(func(name string) *corev1.Node { return w.nodes[name] }, w.now)
		slices.SortFunc(taints, func(a, b nodeTaint) int { return cmp.Compare(a.node, b.node) })
		for _, t := range taints {
			if w.failTaint[t.node] {
				delete(w.failTaint, t.node)
				w.say("%s could not be tainted", t.node)
				w.monitor.requeue(t)
				continue
			}
			w.do(t.actions...)
		}
		if !w.now.Before(until) {
			return
		}
	}
}

func (w *monitorStory) passOnce() {
	var nodes []*corev1.Node
	for _, n := range w.nodes {
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	events, silent := w.monitor.observe(nodes, func(name string) *coordinationv1.Lease { return w.leases[name] }, w.now)
	if !w.quiet {
		w.do(events...)
	}
	silenced, failed := map[string]*corev1.Node{}, map[string]bool{}
	for _, n := range silent {
		if err := w.silence(n); err != nil {
			w.say("%s: %v", n.Name, err)
			failed[n.Name] = true
			continue
		}
		silenced[n.Name] = n
	}
	v := w.monitor.evaluate(nodes, silenced, failed, w.now)
	w.do(v.actions...)
	for _, name := range v.unreadyPods {
		w.say("the pods of %s are not ready", name)
		w.monitor.podsMarked(name)
	}
}

func (w *monitorStory) silence(n *corev1.Node) error {
	if live := w.live[n.Name]; live != nil && w.monitor.renewed(n.Name).Before(live.Spec.RenewTime) {
		w.stale = true
		return errStale("7")
	}
	if w.failStatus[n.Name] {
		delete(w.failStatus, n.Name)
		return errors.New("the status could not be written")
	}
	w.change(n.Name).Status = n.Status
	var all []string
	for _, c := range n.Status.Conditions {
		all = append(all, fmt.Sprintf("%s %s (%s)", c.Type, c.Status, c.Reason))
	}
	w.say("status of %s: %s", n.Name, strings.Join(all, ", "))
	return nil
}

func (w *monitorStory) do(actions ...controller.Action) {
	for _, a := range actions {
		verb, _, obj, ok := controller.Written(a)
		if !ok {
			w.say("%s", a)
			continue
		}
		var patch struct {
			Spec struct{ Taints []corev1.Taint }
		}
		_, data, _ := strings.Cut(a.String(), " {")
		if err := json.Unmarshal([]byte("{"+data), &patch); err != nil || verb != "patch" {
			w.t.Fatalf("%s: %v", a, err)
		}
		w.change(obj.GetName()).Spec.Taints = patch.Spec.Taints
		taints := []string{}
		for _, t := range patch.Spec.Taints {
			taints = append(taints, t.Key+":"+string(t.Effect))
		}
		w.say("taints of %s: %v", obj.GetName(), taints)
	}
}

func (w *monitorStory) say(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf("%v ", w.now.Sub(stories.Epoch))+fmt.Sprintf(format, args...))
}
