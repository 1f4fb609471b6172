package check

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestPart(t *testing.T) {
	root := At(field.NewPath("spec"))
	item := root.Child("template").Item("containers", 2)
	item.Later().Required("name", "")
	item.Invalid("image", "x", "is wrong")
	root.NonNegative("replicas", -1)
	root.NonNegative("fine", 0)
	OneOf(root, "type", corev1.RestartPolicyAlways, corev1.RestartPolicyNever)
	root.Immutable("same", metav1.LabelSelector{}, metav1.LabelSelector{MatchLabels: map[string]string{}})
	At(nil).Required("alone", "") // of another root
	const want = `[spec.template.containers[2].image: Invalid value: "x": is wrong, ` +
		`spec.replicas: Invalid value: -1: must be greater than or equal to 0, ` +
		`spec.type: Unsupported value: "Always": supported values: "Never", ` +
		`spec.template.containers[2].name: Required value]`
	if got := root.Errors().ToAggregate().Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestInternal(t *testing.T) {
	one := intstr.FromInt32(1)
	for _, test := range []struct {
		value any
		want  string
	}{
		{&appsv1.DeploymentStrategy{Type: "X", RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &one}},
			`{"Type":"X","RollingUpdate":{"MaxUnavailable":null,"MaxSurge":1}}`},
		{(*appsv1.DeploymentStrategy)(nil), `null`},
		{[]corev1.LocalObjectReference{{Name: "<a>"}, {}}, `[{"Name":"\u003ca\u003e"},{"Name":""}]`},
		{corev1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{Kind: "X"}, ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
			Spec: corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}}},
			`{"labels":{"a":"b"},"Spec":{"AccessModes":null,"Selector":null,"Resources":{"Limits":null,"Requests":{"storage":"1Gi"}},` +
				`"VolumeName":"","StorageClassName":null,"VolumeMode":null,"DataSource":null,"DataSourceRef":null,"VolumeAttributesClassName":null},` +
				`"Status":{"Phase":"","AccessModes":null,"Capacity":null,"Conditions":null,"AllocatedResources":null,"AllocatedResourceStatuses":null,` +
				`"CurrentVolumeAttributesClassName":null,"ModifyVolumeStatus":null,"HealthStatus":null}}`},
		{"text", `"text"`},
	} {
		got := field.Invalid(field.NewPath("x"), Internal(test.value), "").Error()
		if want := "x: Invalid value: " + test.want; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestPlainLabels(t *testing.T) {
	for _, key := range []string{"app", "app.kubernetes.io/name", "a", "A_b-c.d", "x-y.z/N", "1/2"} {
		if !PlainLabels(map[string]string{key: "v", "b": ""}) {
			t.Errorf("%q is not plain", key)
		}
	}
	for _, key := range []string{"", "-a", "a-", "a b", "a/b/c", "/b", "a/", "A/b", "a..b/c", "a.-b/c", "a-.b/c", ".a/b", "a./b", "-a/b", "a-/b", "ä"} {
		if PlainLabels(map[string]string{key: "v"}) {
			t.Errorf("key %q is plain", key)
		}
	}
	for _, value := range []string{"-a", "a b", "a/b", "ä"} {
		if PlainLabels(map[string]string{"a": value}) {
			t.Errorf("value %q is plain", value)
		}
	}
}

// FuzzPlainLabels checks that plain labels are valid.
func FuzzPlainLabels(f *testing.F) {
	f.Add("app.kubernetes.io/name", "web")
	f.Add("a.-b/c", "-")
	f.Fuzz(func(t *testing.T, key, value string) {
		labels := map[string]string{key: value}
		if errs := metav1validation.ValidateLabels(labels, nil); len(errs) > 0 && PlainLabels(labels) {
			t.Errorf("%q=%q: %v", key, value, errs)
		}
	})
}
