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
