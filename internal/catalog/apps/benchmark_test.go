package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func BenchmarkDeployment(b *testing.B) {
	labels := map[string]string{"app": "web"}
	plain := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}}}}}
	b.ReportAllocs()
	for b.Loop() {
		d := plain
		Deployment.Default(&d)
		if errs := Deployment.Validate(&d); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}
