package plugins_test

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/defaulttolerationseconds"
	"skiff/internal/apiserver/admission/initialresources"
	"skiff/internal/apiserver/admission/plugins"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects/objectstest"
)

var options = plugins.Options{Authorizer: authz.AlwaysAllow{}, Tolerations: defaulttolerationseconds.Defaults, InitialResources: initialresources.Defaults}

// TestOrderIsUpstreams compares it with upstream.
var on = plugins.On()

func TestEnabledPlugins(t *testing.T) {
	for _, c := range []struct {
		name            string
		enable, disable []string
		want            []string
		err             string
	}{
		{"by default", nil, nil, on, ""},
		{"one more, in its place", []string{"NodeRestriction"}, nil, slices.Insert(slices.Clone(on), 3, "NodeRestriction"), ""},
		{"one that is on anyway", []string{"Priority"}, nil, on, ""},
		{"some less", nil, []string{"LimitRanger", "ResourceQuota"}, slices.DeleteFunc(slices.Clone(on), func(n string) bool { return n == "LimitRanger" || n == "ResourceQuota" }), ""},
		{"one less that is off anyway", nil, []string{"AlwaysDeny"}, on, ""},
		{"unknown names", []string{"Nonsense"}, []string{"Rubbish"}, nil, `[enable-admission-plugins plugin "Nonsense" is unknown, disable-admission-plugins plugin "Rubbish" is unknown]`},
		{"what needs a configuration", []string{"EventRateLimit"}, nil, nil, `admission plugin "EventRateLimit", which --admission-control-config-file does not configure: limits: Invalid value: null: must not be empty`},
		{"both", []string{"Priority", "LimitRanger"}, []string{"Priority", "LimitRanger"}, nil,
			`[LimitRanger Priority] in enable-admission-plugins and disable-admission-plugins overlapped`},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := plugins.New(c.enable, c.disable, objectstest.New(), options)
			admissiontest.Expect(t, err, c.err)
			var names []string
			for _, p := range list {
				names = append(names, p.Name())
			}
			if !slices.Equal(names, c.want) {
				t.Errorf("on are %v\nwant   %v", names, c.want)
			}
		})
	}
}

// TestMutatorsCanRunTwice: all mutators run again if a webhook has changed the object, and then find nothing to change.
func TestMutatorsCanRunTwice(t *testing.T) {
	chain := cluster(t, limited(t), func(s *objectstest.Store) {
		s.Put(schedulingv1.Resource("priorityclasses"), admissiontest.Parse(t, &schedulingv1.PriorityClass{}, `{metadata: {name: high}, value: 7, preemptionPolicy: Never}`))
		s.Put(nodev1.Resource("runtimeclasses"), admissiontest.Parse(t, &nodev1.RuntimeClass{},
			`{metadata: {name: vm}, handler: vm, overhead: {podFixed: {cpu: 10m}}, scheduling: {nodeSelector: {vm: "yes"}, tolerations: [{key: vm, operator: Exists}]}}`))
	})
	pod := admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {namespace: ns, name: p}, spec: {priorityClassName: high, runtimeClassName: vm, containers: [{name: c, image: i}]}}`)
	a := &admission.Attributes{Info: podInfo, Operation: admission.Create, Namespace: "ns", Name: "p", Object: pod, User: user, Warn: func(string) {}}
	admit := func() {
		t.Helper()
		if err := chain.Admit(t.Context(), a, func(string) {}); err != nil {
			t.Fatal(err)
		}
	}
	admit()
	once := pod.DeepCopy()
	admit()
	if !reflect.DeepEqual(once, pod) {
		t.Errorf("the second run has made\n%+v\nof\n%+v", pod, once)
	}
	if len(pod.Spec.Tolerations) != 3 || *pod.Spec.Priority != 7 || len(pod.Spec.Volumes) != 1 || pod.Spec.Containers[0].Resources.Limits == nil {
		t.Errorf("the plugins have not run: %+v", pod.Spec)
	}
}
