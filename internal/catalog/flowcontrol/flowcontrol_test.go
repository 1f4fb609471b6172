package flowcontrol

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"skiff/internal/catalog"
	"skiff/internal/catalog/catalogtest"
)

func TestStories(t *testing.T) { catalogtest.Run(t, Resources(), catalogtest.Options{}) }

// The bootstrap objects must be valid, and defaulting must not change them.
func TestBootstrap(t *testing.T) {
	for _, o := range append(Mandatory(), Suggested()...) {
		var info *catalog.Info
		switch o.(type) {
		case *flowcontrolv1.FlowSchema:
			info = FlowSchema.Info()
		default:
			info = PriorityLevelConfiguration.Info()
		}
		before := o.DeepCopyObject()
		info.Default(o)
		if !apiequality.Semantic.DeepEqual(before, o) {
			t.Errorf("%s is changed by defaults", o.GetName())
		}
		if errs := info.Validate(o); len(errs) > 0 {
			t.Errorf("%s: %v", o.GetName(), errs)
		}
	}
}
