package denyserviceexternalips_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/denyserviceexternalips"
)

func TestExternalIPs(t *testing.T) {
	const refusal = `services "s" is forbidden: Use of external IPs is denied by admission control`
	service := func(ips ...string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{ExternalIPs: ips}}
	}
	for _, c := range []struct {
		name     string
		old, new *corev1.Service
		refusal  string
	}{
		{"a new service without", nil, service(), ""},
		{"a new service with one", nil, service("1.1.1.1"), refusal},
		{"the same", service("1.1.1.1", "2.2.2.2"), service("2.2.2.2", "1.1.1.1"), ""},
		{"one less", service("1.1.1.1", "2.2.2.2"), service("2.2.2.2"), ""},
		{"none any more", service("1.1.1.1"), service(), ""},
		{"the first", service(), service("1.1.1.1"), refusal},
		{"another", service("1.1.1.1"), service("2.2.2.2"), refusal},
		{"one more", service("1.1.1.1"), service("1.1.1.1", "2.2.2.2"), refusal},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := admissiontest.Create(c.new)
			if c.old != nil {
				a = admissiontest.Update(c.new, c.old)
			}
			admissiontest.Expect(t, admissiontest.Through(t, denyserviceexternalips.New(), a), c.refusal)
			admissiontest.Expect(t, admissiontest.Through(t, denyserviceexternalips.New(), admissiontest.Subresource(a, c.new, "status")), "")
		})
	}
}
