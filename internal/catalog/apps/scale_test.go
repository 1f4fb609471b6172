package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/catalog"
)

func TestScale(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"b", "a"}}}}
	deployment := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 2}}
	deployment.Spec.Selector = selector
	replicaSet := &appsv1.ReplicaSet{Status: appsv1.ReplicaSetStatus{Replicas: 2}}
	replicaSet.Spec.Selector = selector
	statefulSet := &appsv1.StatefulSet{Status: appsv1.StatefulSetStatus{Replicas: 2}}
	statefulSet.Spec.Selector = selector
	for _, test := range []struct {
		of  catalog.Declaration
		obj catalog.Object
	}{{Deployment, deployment}, {ReplicaSet, replicaSet}, {StatefulSet, statefulSet}} {
		scale := test.of.Info().Scale
		if err := scale.Set(test.obj, 5); err != nil {
			t.Fatal(err)
		}
		spec, status, err := scale.Get(test.obj)
		if err != nil {
			t.Fatal(err)
		}
		if want := (autoscalingv1.ScaleSpec{Replicas: 5}); spec != want {
			t.Errorf("%T: spec is %+v, want %+v", test.obj, spec, want)
		}
		if want := (autoscalingv1.ScaleStatus{Replicas: 2, Selector: "app=web,tier in (a,b)"}); status != want {
			t.Errorf("%T: status is %+v, want %+v", test.obj, status, want)
		}
	}
}
