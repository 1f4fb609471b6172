//go:build linux

package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// history builds watch events for the tests of the checker.
type history struct {
	log []watchEvent
	now time.Time
}

func newHistory() *history {
	h := &history{now: time.Unix(1000, 0)}
	for i := range openNodes {
		h.add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), UID: types.UID(nodeName(i)), Labels: map[string]string{
			corev1.LabelHostname: nodeName(i), corev1.LabelTopologyZone: fmt.Sprint("zone-", i%zones)}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(nodeCPUs, resource.DecimalSI), corev1.ResourcePods: resource.MustParse("110")}}})
	}
	return h
}

func (h *history) happens(what watch.EventType, object metav1.Object) {
	h.now = h.now.Add(time.Millisecond)
	h.log = append(h.log, watchEvent{what, object, int64(len(h.log) + 1), h.now})
}

func (h *history) add(object metav1.Object) { h.happens(watch.Added, object) }

// make creates a pending pod.
func (h *history) make(name string, template corev1.PodTemplateSpec, owner *metav1.OwnerReference) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *template.ObjectMeta.DeepCopy(), Spec: *template.Spec.DeepCopy()}
	p.Namespace, p.Name, p.UID = "default", name, types.UID(name)
	for i := range p.Spec.Containers {
		for j := range p.Spec.Containers[i].Ports {
			p.Spec.Containers[i].Ports[j].Protocol = corev1.ProtocolTCP
		}
	}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	h.add(p)
	return p
}

func (h *history) change(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	p = p.DeepCopy()
	change(p)
	h.happens(watch.Modified, p)
	return p
}

func (h *history) bind(p *corev1.Pod, node int) *corev1.Pod {
	return h.change(p, func(p *corev1.Pod) { p.Spec.NodeName = nodeName(node) })
}

func (h *history) place(name string, template corev1.PodTemplateSpec, node int) *corev1.Pod {
	return h.bind(h.make(name, template, nil), node)
}

func (h *history) judged() (j *checker, complaints string) {
	var out []string
	j = newChecker(func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) })
	j.replay(h.log)
	return j, strings.Join(out, "\n")
}

// styled returns the pod template of a Deployment with a placement style.
func styled(how style) corev1.PodTemplateSpec {
	template := deployment(webApp, how, seeded(1)).Spec.Template
	if len(template.Spec.TopologySpreadConstraints) > 0 {
		template.Spec.TopologySpreadConstraints[0].MaxSkew = 1
	}
	template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("10")
	return template
}

func set(replicas int32) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "set", UID: "set"}, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}}
}

func owned(kind, name string) *metav1.OwnerReference {
	yes := true
	return &metav1.OwnerReference{Kind: kind, Name: name, UID: types.UID(name), Controller: &yes}
}

// TestJudge: the checker finds each kind of violation, and reports none where there only seems to be one.
func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		happens func(*history)
		finds   string // part of the complaint; nothing if empty
		late    int
	}{
		"three fit": {happens: func(h *history) {
			for i := range 3 {
				h.place(fmt.Sprint(i), styled(anyhow), 0)
			}
		}},
		"four do not": {happens: func(h *history) {
			for i := range 4 {
				h.place(fmt.Sprint(i), styled(anyhow), 0)
			}
		}, finds: "against its room"},
		"the room of one that has ended": {happens: func(h *history) {
			for i := range 3 {
				p := h.place(fmt.Sprint(i), styled(anyhow), 0)
				h.change(p, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
			}
			h.place("next", styled(anyhow), 0)
		}},
		"the room of one that is ending": {happens: func(h *history) {
			for i := range 3 {
				p := h.place(fmt.Sprint(i), styled(anyhow), 0)
				h.change(p, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: h.now} })
			}
			h.place("next", styled(anyhow), 0)
		}, finds: "against its room"},
		"a port twice": {happens: func(h *history) {
			h.place("a", styled(onePort), 0)
			h.place("b", styled(onePort), 0)
		}, finds: "against its ports"},
		"a port on each of two": {happens: func(h *history) {
			h.place("a", styled(onePort), 0)
			h.place("b", styled(onePort), 1)
		}},
		"two that repel each other": {happens: func(h *history) {
			h.place("a", styled(apart), 0)
			h.place("b", styled(apart), 0)
		}, finds: "must not be near"},
		"one that an older one repels": {happens: func(h *history) {
			h.place("a", styled(notNearSide), 0)
			h.place("b", pod(sideApp, 1), 0)
		}, finds: "must not have it near"},
		"together": {happens: func(h *history) {
			h.place("a", styled(together), 0)
			h.place("b", styled(together), zones) // another node of the zone
		}},
		"not together": {happens: func(h *history) {
			h.place("a", styled(together), 0)
			h.place("b", styled(together), 1)
		}, finds: "is near"},
		"two that go by each other alone": {happens: func(h *history) {
			h.place("before", styled(together), 1)
			a := h.make("a", styled(together), nil)
			h.place("b", styled(together), zones)
			h.bind(a, 0)
		}, finds: "b came to hollow-3"},
		"by one that is on its way": {happens: func(h *history) {
			template := styled(zoneSpread)
			h.place("0", template, 0)
			h.place("1", template, 1)
			two := h.make("2", template, nil)
			h.place("3", template, zones)
			h.bind(two, 2)
		}, late: 1},
		"one per zone": {happens: func(h *history) {
			for i := range 2 * zones {
				h.place(fmt.Sprint(i), styled(zoneSpread), i)
			}
		}},
		"two in a zone": {happens: func(h *history) {
			h.place("a", styled(zoneSpread), 0)
			h.place("b", styled(zoneSpread), zones)
		}, finds: "against its spread"},
		"two in a zone, one in the others until a moment ago": {happens: func(h *history) {
			for i := range zones {
				p := h.place(fmt.Sprint(i), styled(zoneSpread), i)
				if i == 1 {
					defer h.place("next", styled(zoneSpread), zones)
					defer h.happens(watch.Deleted, p)
				}
			}
		}, late: 1},
		"two in a zone, one in the others long ago": {happens: func(h *history) {
			for i := range zones {
				p := h.place(fmt.Sprint(i), styled(zoneSpread), i)
				if i == 1 {
					defer h.place("next", styled(zoneSpread), zones)
					defer func() { h.now = h.now.Add(2 * lag) }()
					defer h.happens(watch.Deleted, p)
				}
			}
		}, finds: "against its spread"},
		"a cordoned node": {happens: func(h *history) {
			node := h.log[0].object.(*corev1.Node).DeepCopy()
			node.Spec.Unschedulable = true
			h.happens(watch.Modified, node)
			h.now = h.now.Add(2 * lag)
			h.happens(watch.Modified, node)
			h.now = h.now.Add(2 * lag)
			h.place("a", styled(anyhow), 0)
		}, finds: "cordoned"},
		"a node that is not there": {happens: func(h *history) { h.place("a", styled(anyhow), 99) }, finds: "no such node"},
		"bound twice": {happens: func(h *history) {
			h.bind(h.place("a", styled(anyhow), 0), 1)
		}, finds: "bound twice"},
		"as many as wanted": {happens: func(h *history) {
			h.add(set(2))
			h.make("a", styled(anyhow), owned("ReplicaSet", "set"))
			h.make("b", styled(anyhow), owned("ReplicaSet", "set"))
		}},
		"one more than wanted": {happens: func(h *history) {
			h.add(set(2))
			for i := range 3 {
				h.make(fmt.Sprint(i), styled(anyhow), owned("ReplicaSet", "set"))
			}
		}, finds: "number 3 of 2"},
		"one more than wanted since a moment": {happens: func(h *history) {
			h.add(set(2))
			h.make("a", styled(anyhow), owned("ReplicaSet", "set"))
			h.happens(watch.Modified, set(1))
			h.make("b", styled(anyhow), owned("ReplicaSet", "set"))
		}},
		"two sets for one template": {happens: func(h *history) {
			for _, name := range []string{"x", "y"} {
				s := set(1)
				s.Name, s.UID, s.OwnerReferences = name, types.UID(name), []metav1.OwnerReference{*owned("Deployment", "web")}
				s.Spec.Template = styled(anyhow)
				s.Spec.Template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = name
				h.add(s)
			}
		}, finds: "same template"},
		"an index twice": {happens: func(h *history) {
			j := job(seeded(1))
			mode, many := batchv1.IndexedCompletion, int32(5)
			j.UID, j.Namespace, j.Spec.CompletionMode, j.Spec.Parallelism, j.Spec.Completions = "job", "default", &mode, &many, &many
			h.add(j)
			for _, name := range []string{"a", "b"} {
				template := pod("job", 1)
				template.Annotations[batchv1.JobCompletionIndexAnnotation] = "3"
				h.make(name, template, owned("Job", "job"))
			}
		}, finds: "index 3 is taken"},
		"more at a time than wanted": {happens: func(h *history) {
			j := job(seeded(1))
			one, many := int32(1), int32(5)
			j.UID, j.Namespace, j.Spec.Parallelism, j.Spec.Completions = "job", "default", &one, &many
			h.add(j)
			h.make("a", pod("job", 1), owned("Job", "job"))
			h.make("b", pod("job", 1), owned("Job", "job"))
		}, finds: "1 run already"},
		"after the end of a Job": {happens: func(h *history) {
			j := job(seeded(1))
			j.UID, j.Namespace = "job", "default"
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
			h.add(j)
			h.make("a", pod("job", 1), owned("Job", "job"))
		}, finds: "has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHistory()
			test.happens(h)
			j, complaints := h.judged()
			if (complaints == "") != (test.finds == "") || !strings.Contains(complaints, test.finds) || j.late != test.late {
				t.Errorf("the judge says %q, and %d were late", complaints, j.late)
			}
		})
	}
}
