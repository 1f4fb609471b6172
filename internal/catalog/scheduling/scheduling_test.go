package scheduling

import (
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"

	"skiff/internal/catalog/catalogtest"
)

func TestStories(t *testing.T) { catalogtest.Run(t, Resources(), catalogtest.Options{}) }

func TestBootstrapIsValid(t *testing.T) {
	for _, o := range Bootstrap() {
		if errs := validate(o.(*schedulingv1.PriorityClass)); len(errs) > 0 || !IsSystem(o.GetName()) {
			t.Errorf("%s: %v", o.GetName(), errs)
		}
	}
}
