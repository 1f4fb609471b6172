package admission_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
)

func TestForbidden(t *testing.T) {
	pod := func(name, generate string) *admission.Attributes {
		a := admissiontest.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, GenerateName: generate}})
		a.Name = ""
		return a
	}
	named := pod("", "")
	named.Name = "from-url"
	for _, c := range []struct {
		a    *admission.Attributes
		want string
	}{
		{pod("p", "g-"), `pods "p" is forbidden: no`},
		{pod("", "g-"), `pods "g-" is forbidden: no`},
		{pod("", ""), `pods "Unknown" is forbidden: no`},
		{named, `pods "from-url" is forbidden: no`},
		{&admission.Attributes{Info: named.Info}, `pods "Unknown" is forbidden: no`},
	} {
		admissiontest.Expect(t, c.a.Forbidden(errors.New("no")), c.want)
	}
	already := apierrors.NewForbidden(corev1.Resource("nodes"), "n", errors.New("no"))
	if err := named.Forbidden(already); err != error(already) {
		t.Errorf("a Forbidden error was wrapped: %v", err)
	}
}

// recorder is a plugin that records its name when it runs.
type recorder struct {
	name    string
	handles bool
	called  *[]string
	err     error
}

func (n recorder) Name() string                       { return n.name }
func (n recorder) Handles(*admission.Attributes) bool { return n.handles }

type mutator struct{ recorder }

func (m mutator) Admit(context.Context, *admission.Attributes) error {
	*m.called = append(*m.called, m.name)
	return m.err
}

type validator struct{ recorder }

func (v validator) Validate(context.Context, *admission.Attributes) error {
	*v.called = append(*v.called, v.name)
	return v.err
}

func TestChainRunsInOrder(t *testing.T) {
	var called, stages []string
	no := errors.New("no")
	chain := admission.NewChain(mutator{recorder{"a", true, &called, nil}}, validator{recorder{"b", true, &called, no}}, mutator{recorder{"c", false, &called, no}},
		mutator{recorder{"d", true, &called, nil}}, validator{recorder{"e", true, &called, nil}})
	stage := func(name string) { stages = append(stages, name) }
	if err := chain.Admit(t.Context(), &admission.Attributes{}, stage); err != nil {
		t.Error(err)
	}
	if err := chain.Validate(t.Context(), &admission.Attributes{}, stage); err != no {
		t.Errorf("the refusal was lost: %v", err)
	}
	if !slices.Equal(called, []string{"a", "d", "b"}) || !slices.Equal(stages, []string{"admission/a", "admission/d", "admission/b"}) {
		t.Errorf("ran %v, stages %v", called, stages)
	}
}

// reinvoker is a mutator that asks for a second run.
type reinvoker struct {
	recorder
	second *bool
}

func (r reinvoker) Admit(_ context.Context, a *admission.Attributes) error {
	*r.called = append(*r.called, r.name)
	if *r.second = a.Reinvoked(); a.Recall(r.name) == nil {
		a.Remember(r.name, "first")
	}
	a.Reinvoke()
	return nil
}

func TestReinvoke(t *testing.T) {
	var called []string
	second, a := false, &admission.Attributes{}
	chain := admission.NewChain(mutator{recorder{"a", true, &called, nil}}, reinvoker{recorder{"b", true, &called, nil}, &second}, mutator{recorder{"c", true, &called, nil}})
	if err := chain.Admit(t.Context(), a, func(string) {}); err != nil {
		t.Error(err)
	}
	if !slices.Equal(called, []string{"a", "b", "c", "a", "b", "c"}) || !second || a.Recall("b") != "first" || a.Recall("c") != nil {
		t.Errorf("ran %v, second %t", called, second)
	}
}

// origin keeps annotations.
type origin struct {
	admission.Origin
	kept []admission.Annotation
}

func (o *origin) Annotate(n admission.Annotation) { o.kept = append(o.kept, n) }

func TestAddAnnotation(t *testing.T) {
	o := &origin{}
	a := &admission.Attributes{Origin: o}
	const form = "annotation key has invalid format, the right format is a DNS subdomain prefix and '/' and key name. (e.g. 'podsecuritypolicy.admission.k8s.io/admit-policy')"
	for key, want := range map[string]string{"example.com/key": "", "key": form, "a/b/c": form,
		"Example/key": "annotation key has invalid format prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'). A qualified name like 'podsecuritypolicy.admission.k8s.io/admit-policy' is required."} {
		admissiontest.Expect(t, a.AddAnnotation(admission.Annotation{Key: key, Value: "v"}), want)
	}
	if len(o.kept) != 1 || o.kept[0].Key != "example.com/key" {
		t.Errorf("kept %v", o.kept)
	}
}
