package schema

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// TestConcurrentUse uses a schema from several goroutines while others drop it.
func TestConcurrentUse(t *testing.T) {
	crd := definition(t, twentyRules(true))
	crd.Spec.Versions[0].SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.name"}}
	s := New(crd, "v1")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 5 {
				useAll(t, s)
				if i == 0 {
					s.Drop()
				}
			}
		})
	}
	wg.Wait()
}

func useAll(t *testing.T, s *Schema) {
	old, obj := object(t, typicalObject), object(t, typicalObject)
	obj["extra"] = "field"
	unknown, err := s.Prune(obj, true)
	if err != nil || len(unknown) != 1 {
		t.Errorf("pruned %v, error %v", unknown, err)
	}
	if err := s.Default(obj); err != nil {
		t.Error(err)
	}
	if errs := s.Validate(context.Background(), obj); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := s.ValidateUpdate(context.Background(), obj, old); len(errs) > 0 {
		t.Error(errs)
	}
	obj["spec"].(map[string]any)["name"] = "NOT VALID"
	if errs := s.ValidateUpdate(context.Background(), obj, old); len(errs) == 0 {
		t.Error("no error")
	}
	fields, err := s.SelectableFields()
	if err != nil || len(fields) != 1 {
		t.Errorf("selectable fields %v, error %v", fields, err)
	} else if value, err := fields[0].Value(old); value != "frontend" || err != nil {
		t.Errorf("field %q, error %v", value, err)
	}
	if _, err := s.Columns(); err != nil {
		t.Error(err)
	}
	s.Size()
}

// TestCompilesOnce shows that goroutines that need a schema at once wait for one compilation, and that Drop leads to another.
func TestCompilesOnce(t *testing.T) {
	crd := definition(t, twentyRules(true))
	var decoded atomic.Int32
	s := NewFrom(crd, "v1", func() (*apiextensionsv1.CustomResourceDefinitionVersion, error) {
		decoded.Add(1)
		return crd.Spec.Versions[0].DeepCopy(), nil
	})
	if s.Size() != 0 {
		t.Errorf("size %d before use", s.Size())
	}
	for round := range int32(2) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if errs := s.Validate(context.Background(), object(t, typicalObject)); len(errs) > 0 {
					t.Error(errs)
				}
			})
		}
		wg.Wait()
		if got := decoded.Load(); got != round+1 {
			t.Errorf("round %d: compiled %d times in all", round+1, got)
		}
		if s.Size() == 0 {
			t.Error("size 0 after use")
		}
		s.Drop()
		if s.Size() != 0 {
			t.Errorf("size %d after Drop", s.Size())
		}
	}
}
