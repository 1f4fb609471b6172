package tainteviction

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apitest"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) { stories.Run(t, New, stories.Options{}) }

// TestPlans follows a pod over time. Each step is what is observed, and what is decided then.
func TestPlans(t *testing.T) {
	epoch := stories.Epoch
	pod := func(uid string, seconds int64) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid)}, Spec: corev1.PodSpec{
			NodeName: "a", Tolerations: []corev1.Toleration{{Key: "slow", Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds},
				{Key: "fast", Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(5))}, {Key: "fine", Operator: corev1.TolerationOpExists}}}}
	}
	taint := func(keys ...string) (out []corev1.Taint) {
		for _, k := range keys {
			out = append(out, corev1.Taint{Key: k, Effect: corev1.TaintEffectNoExecute})
		}
		return out
	}
	type step struct {
		at          time.Duration
		pod         *corev1.Pod
		nodeDeleted bool
		taints      []corev1.Taint
		want        string
	}
	const cancelled = "Cancelling deletion of Pod default/web"
	const goes = "patch delete Marking for deletion Pod default/web"
	for name, steps := range map[string][]step{
		"evicted when the time is over": {
			{0, pod("1", 60), false, taint("slow"), "again after 1m0s"},
			{30 * time.Second, pod("1", 60), false, taint("slow"), "again after 30s"},
			{60 * time.Second, pod("1", 60), false, taint("slow"), goes},
			{61 * time.Second, nil, false, nil, ""},
		},
		"the taint is removed in time": {
			{0, pod("1", 60), false, taint("slow"), "again after 1m0s"},
			{59 * time.Second, pod("1", 60), false, nil, cancelled},
			{60 * time.Second, pod("1", 60), false, nil, ""},
		},
		"a time that is set stays, whatever is added": {
			{0, pod("1", 60), false, taint("slow"), "again after 1m0s"},
			{10 * time.Second, pod("1", 60), false, taint("slow", "fast"), "again after 50s"},
			{20 * time.Second, pod("1", 60), false, taint("fast"), "again after 40s"},
		},
		"a taint comes that is not tolerated": {
			{0, pod("1", 60), false, taint("slow"), "again after 1m0s"},
			{10 * time.Second, pod("1", 60), false, taint("slow", "other"), cancelled + " " + goes},
		},
		"now it may stay forever": {
			{0, pod("1", 60), false, taint("slow"), "again after 1m0s"},
			{10 * time.Second, pod("1", 60), false, taint("fine"), cancelled},
		},
		"the pod goes by itself": {
			{0, pod("1", 60), false, taint("slow"), "again after 1m0s"},
			{10 * time.Second, nil, false, nil, cancelled},
		},
		"another pod takes its name": {
			{0, pod("1", 60), false, taint("slow"), "again after 1m0s"},
			{10 * time.Second, pod("2", 60), false, taint("slow"), cancelled + " again after 1m0s"},
		},
		"the node goes": {
			{0, pod("1", 60), false, taint("slow"), "again after 1m0s"},
			{10 * time.Second, pod("1", 60), true, nil, "again after 50s"},
			{60 * time.Second, pod("1", 60), true, nil, goes},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var planned *plan
			for i, s := range steps {
				o := observed{key: controller.Key{Namespace: "default", Name: "web"}, pod: s.pod, node: &corev1.Node{}, taints: s.taints, planned: planned}
				if s.nodeDeleted {
					o.node = nil
				}
				var d controller.Decision
				d, planned = decide(o, epoch.Add(s.at))
				if got := say(d); got != s.want {
					t.Errorf("step %d: %q, want %q", i, got, s.want)
				}
			}
		})
	}
}

// say describes a decision in a few words, as if all its actions succeeded.
func say(d controller.Decision) string {
	var words []string
	for {
		for _, a := range d.Actions {
			if verb, _, _, ok := controller.Written(a); ok {
				words = append(words, verb)
			} else {
				_, message, _ := strings.Cut(a.String(), "TaintManagerEviction: ")
				words = append(words, message)
			}
		}
		if d.Then == nil {
			break
		}
		d = d.Then(nil)
	}
	if d.RequeueAfter > 0 {
		words = append(words, "again after "+d.RequeueAfter.String())
	}
	return strings.Join(words, " ")
}

// On a server, with the rights of the service account: pods that tolerate a taint stay, pods that do not are evicted at once, those that tolerate it for a
// time are evicted then, even if the loop was restarted meanwhile.
func TestOnServer(t *testing.T) {
	server := apitest.Start(t)
	ctx, c := t.Context(), server.Client().CoreV1()
	stop := controllertest.Run(t, server, New)
	for _, name := range []string{"a", "b"} {
		if _, err := c.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name, node string, tolerations ...corev1.Toleration) {
		_, err := c.Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node,
			Containers: []corev1.Container{{Name: "c", Image: "i"}}, Tolerations: tolerations}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	bad := func(seconds *int64) corev1.Toleration {
		return corev1.Toleration{Key: "bad", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds}
	}
	run("stays", "a", bad(nil))
	run("goes", "a")
	run("goes-later", "a", bad(new(int64(3))))
	run("elsewhere", "b")
	began := time.Now()
	taint := fmt.Sprintf(`{"spec":{"taints":[{"key":"bad","effect":"NoExecute","timeAdded":%q}]}}`, began.UTC().Format(time.RFC3339))
	if _, err := c.Nodes().Patch(ctx, "a", types.MergePatchType, []byte(taint), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	leaving := func() (names []string) {
		for _, name := range []string{"stays", "goes", "goes-later", "elsewhere"} {
			pod, err := c.Pods("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			if err != nil || pod.DeletionTimestamp != nil {
				names = append(names, name)
			}
		}
		return names
	}
	controllertest.Eventually(t, func() string {
		if got := leaving(); !slices.Equal(got, []string{"goes"}) {
			return fmt.Sprintf("goes, and no other, has to go: %v", got)
		}
		return ""
	})
	pod, err := c.Pods("default").Get(ctx, "goes", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if m := condition(pod, corev1.DisruptionTarget); m == nil || m.Status != corev1.ConditionTrue || m.Reason != "DeletionByTaintManager" ||
		m.Message != "Taint manager: deleting due to NoExecute taint" || m.ObservedGeneration == 0 || m.LastTransitionTime.IsZero() {
		t.Errorf("%+v", m)
	}
	controllertest.Eventually(t, func() string {
		events, err := c.Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=TaintManagerEviction,involvedObject.name=goes"})
		if err != nil {
			t.Fatal(err)
		}
		if len(events.Items) != 1 || events.Items[0].Message != "Marking for deletion Pod default/goes" || events.Items[0].Type != "Normal" {
			return fmt.Sprintf("an event, not %v", events.Items)
		}
		return ""
	})
	stop()
	controllertest.Run(t, server, New)
	controllertest.Eventually(t, func() string {
		if got := leaving(); !slices.Equal(got, []string{"goes", "goes-later"}) {
			return fmt.Sprintf("goes-later has to go: %v", got)
		}
		return ""
	})
	if took := time.Since(began); took < 3*time.Second || took > 10*time.Second {
		t.Errorf("goes-later went after %v", took)
	}
}

// The loop is restarted at random moments while pods are bound to a tainted node: exactly those that do not tolerate the taint are evicted.
func TestRestarts(t *testing.T) {
	server := apitest.Start(t)
	ctx, c := t.Context(), server.Client().CoreV1()
	if _, err := c.Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{
		Taints: []corev1.Taint{{Key: "bad", Effect: corev1.TaintEffectNoExecute}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const rounds, each = 10, 10
	for round := range rounds {
		stop := controllertest.Run(t, server, New)
		for i := range each {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p-%d-%d", round, i)}, Spec: corev1.PodSpec{NodeName: "a",
				Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			if i%2 == 0 {
				pod.Spec.Tolerations = []corev1.Toleration{{Key: "bad", Operator: corev1.TolerationOpExists}}
			}
			if _, err := c.Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		stop() // at any point of its work
	}
	controllertest.Run(t, server, New)
	controllertest.Eventually(t, func() string {
		list, err := c.Pods("default").List(context.WithoutCancel(ctx), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		gone := rounds*each - len(list.Items)
		for _, pod := range list.Items {
			if going := pod.DeletionTimestamp != nil; going && len(pod.Spec.Tolerations) > 2 { // two are every pod's
				t.Fatalf("%s goes although it tolerates", pod.Name)
			} else if going {
				gone++
			}
		}
		if gone < rounds*each/2 {
			return fmt.Sprintf("half of the pods gone; %d are", gone)
		}
		return ""
	})
}
