package initialization_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/initialization"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog/admissionregistration/v1alpha1"
	"skiff/internal/catalog/initializers"
)

var configurations = schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "initializerconfigurations"}

func put(t testing.TB, s *objectstest.Store, name, in string) {
	c := admissiontest.Parse(t, &v1alpha1.InitializerConfiguration{}, `{initializers: `+in+`}`)
	c.Name = name
	s.Put(configurations, c)
}

// asker allows everything or nothing, and notes what it is asked.
type asker struct {
	allow bool
	asked *[]string
}

func authorizer(allow bool, asked *[]string) authz.Authorizer { return asker{allow, asked} }

// Authorize implements authz.Authorizer.
func (w asker) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	*w.asked = append(*w.asked, strings.Join([]string{a.User.Username, a.Verb, a.Plural, a.Namespace, a.Name}, " "))
	if w.allow {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// TestMatching: any rule of an initializer is enough, and configurations are sorted by name.
func TestMatching(t *testing.T) {
	s := objectstest.New()
	p := initialization.New(s, authorizer(false, nil))
	pod := admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {name: p, namespace: ns}}`)
	if a := admissiontest.Create(pod); p.Handles(a) {
		t.Error("the plugin handles writes although nothing is configured")
	}
	put(t, s, "b", `[{name: b.example.com, rules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments]}, {apiGroups: [""], apiVersions: ["*"], resources: [pods]}]}]`)
	put(t, s, "a", `[{name: z.example.com, rules: [{apiGroups: ["*"], apiVersions: [v1], resources: ["*"]}]}, {name: none.example.com}, {name: a.example.com, rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods]}]}]`)
	put(t, s, "c", `[{name: c.example.com, rules: [{apiGroups: [""], apiVersions: [v2], resources: [pods]}, {apiGroups: [apps], apiVersions: [v1], resources: [pods]}, {apiGroups: [""], apiVersions: [v1], resources: [secrets]}]}]`)
	for _, c := range []struct {
		a    *admission.Attributes
		want string
	}{
		{admissiontest.Create(pod), "z.example.com a.example.com b.example.com"},
		{admissiontest.Create(admissiontest.Parse(t, &corev1.Secret{}, `{metadata: {name: s, namespace: ns}}`)), "z.example.com c.example.com"},
		{admissiontest.Create(admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {name: p, namespace: ns, annotations: {kubernetes.io/config.mirror: x}}}`)), ""},
	} {
		admissiontest.Expect(t, admissiontest.Through(t, p, c.a), "")
		if got := strings.Join(c.a.Initializers.Names(), " "); got != c.want {
			t.Errorf("%s: pending %q, want %q", c.a.Info.GVR.Resource, got, c.want)
		}
	}
}

// TestVerb: whoever changes an object that waits, or says what one waits for, must be allowed to initialize the resource.
func TestVerb(t *testing.T) {
	pod := admissiontest.Parse(t, &corev1.Pod{}, `{metadata: {name: p, namespace: ns, resourceVersion: "1"}}`)
	two, one := initializers.Of("a.example.com", "b.example.com"), initializers.Of("b.example.com")
	for _, c := range []struct {
		name     string
		old, new *initializers.Initializers
		create   bool
		want     string
	}{
		{"an object that is initialized", nil, nil, false, ""},
		{"any change of one that waits", two, two, false, `pods "p" is forbidden: update to uninitialized resource denied: `},
		{"the first is done", two, one, false, `pods "p" is forbidden: update to uninitialized resource denied: `},
		{"own initializers", nil, two, true, `pods "p" is forbidden: create with initializers denied: `},
		{"no initializers", nil, nil, true, `pods "p" is forbidden: create with initializers denied: `},
	} {
		for _, allowed := range []bool{true, false} {
			t.Run(c.name, func(t *testing.T) {
				asked := []string{}
				p := initialization.New(objectstest.New(), authorizer(allowed, &asked))
				a := admissiontest.Update(pod, pod)
				if c.create {
					a = admissiontest.Create(pod)
					a.SentInitializers = true
				}
				a.User = &authn.User{Username: "u"}
				a.OldInitializers, a.Initializers = c.old, c.new
				want := c.want
				if allowed {
					want = ""
				}
				err := admissiontest.Through(t, p, a)
				switch {
				case want == "" && err != nil, want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
					t.Errorf("refused with %v, want %q", err, want)
				}
				if c.want != "" && !slices.Equal(asked, []string{"u initialize pods ns p"}) {
					t.Errorf("asked %q", asked)
				}
			})
		}
	}
}

func BenchmarkNotConfigured(b *testing.B) {
	p := initialization.New(objectstest.New(), authorizer(false, nil))
	a := admissiontest.Create(admissiontest.Parse(b, &corev1.Pod{}, `{metadata: {name: p, namespace: ns}}`))
	b.ReportAllocs()
	for b.Loop() {
		if p.Handles(a) {
			b.Fatal("the plugin handles writes although nothing is configured")
		}
	}
}
