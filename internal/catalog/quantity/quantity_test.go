package quantity

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

func TestNames(t *testing.T) {
	const (
		notStandard  = "must be a standard resource type or fully qualified"
		notContainer = "must be a standard resource for containers"
		notQuota     = "must be a standard resource for quota"
		notExtended  = "doesn't follow extended resource name standard"
		notQualified = "name part must consist of alphanumeric characters"
	)
	for _, test := range []struct {
		name                               corev1.ResourceName
		any, container, quota, pod         string // what is wrong, "" if nothing
		native, extended, integer, overcom bool
	}{
		{name: "cpu", native: true, overcom: true},
		{name: "memory", native: true, overcom: true},
		{name: "ephemeral-storage", pod: "supported values", native: true, overcom: true},
		{name: "storage", container: notContainer, quota: notQuota, pod: "supported values", native: true, overcom: true},
		{name: "pods", container: notContainer, pod: "supported values", native: true, integer: true, overcom: true},
		{name: "requests.storage", container: notContainer, pod: "supported values", native: true, overcom: true},
		{name: "services.nodeports", container: notContainer, pod: "supported values", native: true, integer: true, overcom: true},
		{name: "hugepages-2Mi", native: true},
		{name: "requests.hugepages-2Mi", container: notContainer, pod: "supported values", native: true, overcom: true},
		{name: "gpu", any: notStandard, container: notContainer, quota: notQuota, pod: notStandard, native: true, overcom: true},
		{name: "a b", any: notQualified, container: notContainer, quota: notQuota, pod: notQualified, native: true, overcom: true},
		{name: "example.com/gpu", pod: "supported values", extended: true, integer: true},
		{name: "requests.example.com/gpu", container: notExtended, pod: "supported values"},
		{name: "kubernetes.io/x", pod: "supported values", native: true, overcom: true},
	} {
		for kind, found := range map[string]struct {
			errs field.ErrorList
			want string
		}{
			"any": {Name(test.name, nil), test.any}, "container": {ContainerName(test.name, nil), test.container},
			"quota": {QuotaName(test.name, nil), test.quota}, "pod": {PodLevelName(test.name, nil), test.pod},
		} {
			if got := text(found.errs); (got == "") != (found.want == "") || !strings.Contains(got, found.want) {
				t.Errorf("%s in %s: %q, want %q", test.name, kind, got, found.want)
			}
		}
		for kind, pair := range map[string][2]bool{
			"native": {IsNative(test.name), test.native}, "extended": {IsExtended(test.name), test.extended},
			"integer": {IsInteger(test.name), test.integer}, "overcommit": {IsOvercommitAllowed(test.name), test.overcom},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s %s: %v, want %v", test.name, kind, pair[0], pair[1])
			}
		}
	}
}

func TestAmounts(t *testing.T) {
	for _, test := range []struct{ name, amount, want string }{
		{"cpu", "1500m", ""},
		{"cpu", "-1", "must be greater than or equal to 0"},
		{"pods", "1500m", "must be an integer"},
		{"example.com/gpu", "-1500m", "must be greater than or equal to 0, must be an integer"},
	} {
		if got := text(ForResource(test.name, resource.MustParse(test.amount), nil)); got != test.want {
			t.Errorf("%s of %s: %q, want %q", test.amount, test.name, got, test.want)
		}
	}
	if got := text(Positive(resource.MustParse("0"), nil)); got != "must be greater than zero" {
		t.Error(got)
	}
	if text(Positive(resource.MustParse("1m"), nil)) != "" {
		t.Error("1m is positive")
	}
}

func TestHugePages(t *testing.T) {
	for name, whole := range map[corev1.ResourceName]bool{"hugepages-2Mi": true, "hugepages-4Mi": false, "hugepages-": false, "hugepages-0": false, "hugepages-x": false, "cpu": false} {
		if got := WholeHugePages(name, resource.MustParse("6Mi")); got != whole {
			t.Errorf("6Mi of %s: %v, want %v", name, got, whole)
		}
	}
}

func TestRoundUp(t *testing.T) {
	list := corev1.ResourceList{"cpu": resource.MustParse("0.0001"), "memory": resource.MustParse("1Gi")}
	RoundUp(list)
	if got := list.Cpu().String() + " " + list.Memory().String(); got != "1m 1Gi" {
		t.Error(got)
	}
}

func TestRequirements(t *testing.T) {
	amounts := func(pairs ...string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for i := 0; i < len(pairs); i += 2 {
			list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return list
	}
	for name, test := range map[string]struct {
		limits, requests corev1.ResourceList
		partial          bool
		want             string
	}{
		"nothing":            {},
		"fine":               {limits: amounts("cpu", "2", "hugepages-2Mi", "4Mi"), requests: amounts("cpu", "1", "hugepages-2Mi", "4Mi")},
		"too much":           {limits: amounts("cpu", "1"), requests: amounts("cpu", "2"), want: "must be less than or equal to cpu limit of 1"},
		"not the same":       {limits: amounts("example.com/gpu", "2"), requests: amounts("example.com/gpu", "1"), want: "must be equal to example.com/gpu limit of 2"},
		"no limit":           {requests: amounts("example.com/gpu", "1"), want: "Limit must be set for non overcommitable resources"},
		"partial pages":      {limits: amounts("cpu", "1", "hugepages-2Mi", "3Mi"), want: "3Mi is not positive integer multiple of hugepages-2Mi"},
		"partial pages kept": {limits: amounts("cpu", "1", "hugepages-2Mi", "3Mi"), partial: true},
		"pages alone":        {limits: amounts("hugepages-2Mi", "4Mi"), want: "HugePages require cpu or memory"},
		"in order":           {limits: amounts("z", "1", "a", "1", "cpu", "-1"), want: "must be a standard resource type or fully qualified, must be a standard resource for containers, must be greater than or equal to 0, must be a standard resource type or fully qualified, must be a standard resource for containers"},
	} {
		p := check.At(field.NewPath("resources"))
		Requirements{Name: ContainerName, PartialHugePages: test.partial}.Validate(test.limits, test.requests, p)
		if got := text(p.Errors()); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestResourceFieldRef(t *testing.T) {
	for _, test := range []struct {
		ref      corev1.ResourceFieldSelector
		inVolume bool
		want     string
	}{
		{ref: corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: resource.MustParse("1m")}},
		{ref: corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: resource.MustParse("1Mi")}, want: "only divisor's values 1m and 1 are supported with the cpu resource"},
		{ref: corev1.ResourceFieldSelector{Resource: "requests.hugepages-2Mi", Divisor: resource.MustParse("1Gi")}},
		{ref: corev1.ResourceFieldSelector{Resource: "limits.cpu"}, inVolume: true, want: "Required value"},
		{ref: corev1.ResourceFieldSelector{Resource: "cpu"}, want: `supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"`},
	} {
		if got := text(ResourceFieldRef(&test.ref, test.inVolume, field.NewPath("ref"))); got != test.want {
			t.Errorf("%v: %q, want %q", test.ref, got, test.want)
		}
	}
}

func text(errs field.ErrorList) string {
	var words []string
	for _, err := range errs {
		if err.Detail == "" {
			words = append(words, err.Type.String())
		} else {
			words = append(words, err.Detail)
		}
	}
	return strings.Join(words, ", ")
}
