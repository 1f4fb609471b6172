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
		t.Errorf("a refusal was refused: %v", err)
	}
}

// note is a plugin that notes when it is asked.
type note struct {
	name    string
	handles bool
	asked   *[]string
	err     error
}

func (n note) Name() string                       { return n.name }
func (n note) Handles(*admission.Attributes) bool { return n.handles }

type mutator struct{ note }

func (m mutator) Admit(context.Context, *admission.Attributes) error {
	*m.asked = append(*m.asked, m.name)
	return m.err
}

type validator struct{ note }

func (v validator) Validate(context.Context, *admission.Attributes) error {
	*v.asked = append(*v.asked, v.name)
	return v.err
}

func TestChainAsksInOrder(t *testing.T) {
	var asked, stages []string
	no := errors.New("no")
	chain := admission.NewChain(mutator{note{"a", true, &asked, nil}}, validator{note{"b", true, &asked, no}}, mutator{note{"c", false, &asked, no}},
		mutator{note{"d", true, &asked, nil}}, validator{note{"e", true, &asked, nil}})
	stage := func(name string) { stages = append(stages, name) }
	if err := chain.Admit(t.Context(), &admission.Attributes{}, stage); err != nil {
		t.Error(err)
	}
	if err := chain.Validate(t.Context(), &admission.Attributes{}, stage); err != no {
		t.Errorf("the refusal was lost: %v", err)
	}
	if !slices.Equal(asked, []string{"a", "d", "b"}) || !slices.Equal(stages, []string{"admission/a", "admission/d", "admission/b"}) {
		t.Errorf("asked %v, told %v", asked, stages)
	}
}
