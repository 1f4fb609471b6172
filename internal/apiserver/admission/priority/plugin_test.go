package priority_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/priority"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

var classes = schedulingv1.Resource("priorityclasses")

func store(t *testing.T, list ...string) *objectstest.Store {
	s := objectstest.New()
	for _, class := range list {
		s.Put(classes, admissiontest.Parse(t, &schedulingv1.PriorityClass{}, class))
	}
	return s
}

func TestPods(t *testing.T) {
	const (
		high  = `{metadata: {name: high}, value: 1000, preemptionPolicy: PreemptLowerPriority}`
		calm  = `{metadata: {name: calm}, value: 500, preemptionPolicy: Never}`
		mid   = `{metadata: {name: mid}, value: 10, globalDefault: true, preemptionPolicy: PreemptLowerPriority}`
		mid2  = `{metadata: {name: mid2}, value: 5, globalDefault: true}`
		nodef = `{metadata: {name: other}, value: 7}`
	)
	for _, c := range []struct {
		name          string
		classes       []string
		spec          string
		want, refusal string
	}{
		{"no class, no default", []string{nodef}, `{}`, `{priority: 0, preemptionPolicy: PreemptLowerPriority}`, ""},
		{"the default class", []string{high, mid}, `{}`, `{priorityClassName: mid, priority: 10, preemptionPolicy: PreemptLowerPriority}`, ""},
		{"the lower of two defaults", []string{mid, mid2}, `{}`, `{priorityClassName: mid2, priority: 5}`, ""},
		{"a named class", []string{high, mid}, `{priorityClassName: high}`, `{priorityClassName: high, priority: 1000, preemptionPolicy: PreemptLowerPriority}`, ""},
		{"a class that preempts nobody", []string{calm}, `{priorityClassName: calm}`, `{priorityClassName: calm, priority: 500, preemptionPolicy: Never}`, ""},
		{"no such class", []string{mid}, `{priorityClassName: none}`, "", `pods "p" is forbidden: no PriorityClass with name none was found`},
		{"the same number", []string{high}, `{priorityClassName: high, priority: 1000}`, `{priorityClassName: high, priority: 1000, preemptionPolicy: PreemptLowerPriority}`, ""},
		{"another number", []string{high}, `{priorityClassName: high, priority: 7}`, "",
			`pods "p" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name`},
		{"another policy", []string{calm}, `{priorityClassName: calm, preemptionPolicy: PreemptLowerPriority}`, "",
			`pods "p" is forbidden: the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; priority admission controller computed Never from the given PriorityClass name`},
		{"a class without a policy leaves the pod's", []string{nodef}, `{priorityClassName: other, preemptionPolicy: Never}`, `{priorityClassName: other, priority: 7, preemptionPolicy: Never}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			plugin := priority.New(store(t, c.classes...))
			pod := &corev1.Pod{Spec: *admissiontest.Parse(t, &corev1.PodSpec{}, c.spec)}
			pod.Name = "p"
			admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Create(pod)), c.refusal)
			if c.refusal == "" {
				admissiontest.Same(t, pod.Spec, admissiontest.Parse(t, &corev1.PodSpec{}, c.want))
			}
		})
	}
}

func TestUpdateKeepsOmittedValues(t *testing.T) {
	old := &corev1.Pod{Spec: *admissiontest.Parse(t, &corev1.PodSpec{}, `{priority: 7, preemptionPolicy: Never}`)}
	pod := &corev1.Pod{}
	admissiontest.Expect(t, admissiontest.Through(t, priority.New(objectstest.New()), admissiontest.Update(pod, old)), "")
	admissiontest.Same(t, pod.Spec, old.Spec)
	if pod.Spec.Priority == old.Spec.Priority {
		t.Error("the new pod shares memory with the old one")
	}
}

// lagging is a store whose cache is outdated.
type lagging struct {
	*objectstest.Store
	before *objectstest.Store
}

func (l lagging) Get(r schema.GroupResource, namespace, name string) catalog.Object {
	return l.before.Get(r, namespace, name)
}
func (l lagging) Follow(r schema.GroupResource, changed func(before, after catalog.Object)) {
	l.before.Follow(r, changed)
}

func TestOneDefaultClass(t *testing.T) {
	class := func(text string) *schedulingv1.PriorityClass {
		return admissiontest.Parse(t, &schedulingv1.PriorityClass{}, text)
	}
	const first, notDefault = `{metadata: {name: first}, value: 1, globalDefault: true}`, `{metadata: {name: first}, value: 1}`
	for _, c := range []struct {
		name   string
		plugin admission.Plugin
		write  *admission.Attributes
		want   string
	}{
		{"the first", priority.New(store(t, notDefault)), admissiontest.Create(class(`{metadata: {name: second}, globalDefault: true}`)), ""},
		{"a second", priority.New(store(t, first)), admissiontest.Create(class(`{metadata: {name: second}, globalDefault: true}`)),
			`priorityclasses.scheduling.k8s.io "second" is forbidden: PriorityClass first is already marked as default. Only one default can exist`},
		{"one that is none", priority.New(store(t, first)), admissiontest.Create(class(`{metadata: {name: second}}`)), ""},
		{"one that becomes a second", priority.New(store(t, first)), admissiontest.Update(class(`{metadata: {name: second}, globalDefault: true}`), class(`{metadata: {name: second}}`)),
			`priorityclasses.scheduling.k8s.io "second" is forbidden: PriorityClass first is already marked as default. Only one default can exist`},
		{"an update of the first", priority.New(store(t, first)), admissiontest.Update(class(first), class(first)), ""},
		{"the first has just been deleted", priority.New(lagging{store(t), store(t, first)}), admissiontest.Create(class(`{metadata: {name: second}, globalDefault: true}`)), ""},
		{"the first has just given it up", priority.New(lagging{store(t, notDefault), store(t, first)}), admissiontest.Create(class(`{metadata: {name: second}, globalDefault: true}`)), ""},
	} {
		t.Run(c.name, func(t *testing.T) { admissiontest.Expect(t, admissiontest.Through(t, c.plugin, c.write), c.want) })
	}
	pod := admissiontest.Parse(t, &corev1.Pod{}, `{spec: {priorityClassName: first}}`)
	admissiontest.Expect(t, admissiontest.Through(t, priority.New(lagging{store(t, first), store(t)}), admissiontest.Create(pod)), "")
}
