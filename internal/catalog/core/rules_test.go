package core

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog"
)

// A namespace gets its label also if the server generated its name.
func TestGeneratedNamespaceIsLabelled(t *testing.T) {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}
	defaultNamespace(n)
	if n.Labels != nil {
		t.Error(n.Labels)
	}
	n.Name = "x-1"
	prepareNamespace(n, catalog.Request{})
	if n.Labels[corev1.LabelMetadataName] != "x-1" {
		t.Error(n.Labels)
	}
}

func TestDyingNamespaceTerminates(t *testing.T) {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr.To(metav1.Now())}}
	n.Status.Phase = corev1.NamespaceTerminating
	if errs := validateNamespaceStatus(n, n); len(errs) > 0 {
		t.Error(errs)
	}
	n.Status.Phase = corev1.NamespaceActive
	want := "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"
	if errs := validateNamespaceStatus(n, n); len(errs) != 1 || errs[0].Error() != want {
		t.Error(errs)
	}
}

func TestNamelessLimitRange(t *testing.T) {
	l := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	LimitRange.PrepareCreate(l, catalog.Request{})
	if l.Name != "u" {
		t.Error(l.Name)
	}
}

func TestSizeLimits(t *testing.T) {
	half := strings.Repeat("x", corev1.MaxSecretSize/2)
	c := &corev1.ConfigMap{Data: map[string]string{"a": half}, BinaryData: map[string][]byte{"b": []byte(half)}}
	if errs := validateConfigMap(c); len(errs) > 0 {
		t.Error(errs)
	}
	c.Data["c"] = "x"
	if errs := validateConfigMap(c); len(errs) != 1 || errs[0].Error() != "[]: Too long: may not be more than 1048576 bytes" {
		t.Error(errs)
	}
	s := &corev1.Secret{Data: map[string][]byte{"a": []byte(half + half + "x")}}
	if errs := validateSecret(s); len(errs) != 1 || errs[0].Error() != "data: Too long: may not be more than 1048576 bytes" {
		t.Error(errs)
	}
}

func TestBinding(t *testing.T) {
	for name, c := range map[string]struct {
		target corev1.ObjectReference
		want   string
	}{
		"node":    {corev1.ObjectReference{Kind: "Node", Name: "n"}, ""},
		"no kind": {corev1.ObjectReference{Name: "n"}, ""},
		"pod":     {corev1.ObjectReference{Kind: "Pod", Name: "Any_"}, `target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"`},
		"no name": {corev1.ObjectReference{}, "target.name: Required value"},
	} {
		err := ValidateBinding(&corev1.Binding{Target: c.target}).ToAggregate()
		if (err != nil || c.want != "") && (err == nil || err.Error() != c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if errs := ValidateBinding(&corev1.Binding{Target: corev1.ObjectReference{Name: "Bad_"}}); len(errs) != 1 || errs[0].Field != "target.name" {
		t.Error(errs)
	}
}

func TestComponentStatusColumns(t *testing.T) {
	for want, conditions := range map[string][]corev1.ComponentCondition{
		"Unknown":   {{Type: "Other", Status: corev1.ConditionTrue}},
		"Healthy":   {{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}},
		"Unhealthy": {{Type: corev1.ComponentHealthy, Status: corev1.ConditionFalse, Error: "no"}},
	} {
		if got := componentHealth(&corev1.ComponentStatus{Conditions: conditions}, time.Time{}); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func TestReplicationControllerScale(t *testing.T) {
	rc := &corev1.ReplicationController{}
	rc.Spec.Selector = map[string]string{"b": "2", "a": "1"}
	rc.Status.Replicas = 3
	ReplicationController.Scale.Set(rc, 5)
	spec, status := ReplicationController.Scale.Get(rc)
	if spec.Replicas != 5 || status.Replicas != 3 || status.Selector != "a=1,b=2" {
		t.Error(spec, status)
	}
}

func TestUnknownNonConvertibleField(t *testing.T) {
	old := &corev1.ReplicationController{}
	old.Annotations = map[string]string{"non-convertible.kubernetes.io/spec.other": "x", "non-convertible.kubernetes.io": "y"}
	errs := validateNonConvertible(old, old)
	if len(errs) != 1 || errs[0].Error() != `spec.other: Not found: "x": unknown non-convertible field` {
		t.Error(errs)
	}
}

// Endpoints that were accepted once stay valid as long as they do not change.
func TestUnchangedEndpoints(t *testing.T) {
	old := &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "010.0.0.1"}}}}}
	if errs := validateEndpointsUpdate(old.DeepCopy(), old); len(errs) > 0 {
		t.Error(errs)
	}
	if got := endpointsWarnings(old, nil); len(got) != 1 || !strings.Contains(got[0], `use "10.0.0.1"`) {
		t.Error(got)
	}
}

func TestFeatureNames(t *testing.T) {
	for name, want := range map[string]bool{
		"A": true, "Abc1": true, "A/b": true, "A/B/c2": true,
		"": false, "a": false, "1": false, "A/": false, "/A": false, "A//b": false, "A/1": false, "A-b": false, "A/b!": false,
	} {
		if got := isFeatureName(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

func BenchmarkService(b *testing.B) {
	s := clusterIPService("10.0.0.1")
	s.Spec.Selector = map[string]string{"app": "web"}
	b.ReportAllocs()
	for b.Loop() {
		defaultService(s)
		if errs := validateService(s, nil); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

func BenchmarkNodeStatus(b *testing.B) {
	n := &corev1.Node{}
	n.Spec.PodCIDR = "10.0.0.0/24"
	n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110"), "ephemeral-storage": resource.MustParse("100Gi")}
	defaultNode(n)
	b.ReportAllocs()
	for b.Loop() {
		defaultNode(n)
		if errs := validateNodeUpdate(n, n); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
