package core

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/catalogtest"
)

func TestStories(t *testing.T) {
	var declarations []catalog.Declaration
	for _, d := range Resources() {
		if d.Info().GVR.Resource == "services" {
			d = allocating{families: []corev1.IPFamily{corev1.IPv4Protocol}}
		}
		declarations = append(declarations, d)
	}
	catalogtest.Run(t, declarations, catalogtest.Options{})
}

// allocating declares services with the allocation of addresses and ports that the server does before anything else.
// Stories name the addresses and ports, because upstream picks them at random.
type allocating struct{ families []corev1.IPFamily }

func (a allocating) Info() *catalog.Info {
	i := Service.Info()
	i.Stored = i
	var refused field.ErrorList
	prepareUpdate, validate, validateUpdate := i.PrepareUpdate, i.Validate, i.ValidateUpdate
	i.PrepareCreate = func(o catalog.Object, _ catalog.Request) { refused = a.allocate(o.(*corev1.Service), nil) }
	i.PrepareUpdate = func(new, old catalog.Object) {
		refused = a.allocate(new.(*corev1.Service), old.(*corev1.Service))
		prepareUpdate(new, old)
	}
	i.FromStored = func(o catalog.Object) catalog.Object {
		DefaultOnRead(o.(*corev1.Service), a.families[0])
		return o
	}
	i.Validate = func(o runtime.Object) field.ErrorList {
		if refused != nil {
			return refused
		}
		return validate(o)
	}
	i.ValidateUpdate = func(ctx context.Context, new, old catalog.Object) field.ErrorList {
		if refused != nil {
			return refused
		}
		return validateUpdate(ctx, new, old)
	}
	return i
}

func (a allocating) allocate(new, old *corev1.Service) field.ErrorList {
	if errs := PrepareAllocation(new, old, a.families); len(errs) > 0 {
		return errs
	}
	claims, _ := ClusterIPClaims(new, old)
	for _, c := range claims {
		SetClusterIP(new, c, c.IP)
	}
	if err := AllocateNodePorts(new, old, anyPort{}); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return nil
}

// anyPort is a pool that has every port.
type anyPort struct{}

func (anyPort) Take(int32) error        { return nil }
func (anyPort) TakeAny() (int32, error) { return 32767, nil }
func (anyPort) Release(int32)           {}

// TestDualStack replays stories of a cluster that has both IP families.
func TestDualStack(t *testing.T) {
	t.Chdir("testdata/dualstack")
	both := allocating{families: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}}
	catalogtest.Run(t, []catalog.Declaration{both}, catalogtest.Options{})
}
