package servicecidr_test

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/servicecidr"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) { stories.Run(t, servicecidr.New, stories.Options{}) }

// TestSecondRange: a second ServiceCIDR becomes Ready, Services get addresses of it on request and when the first is used up, and when it is deleted it stays
// until the last Service with an address of it is gone.
func TestSecondRange(t *testing.T) {
	server := apitest.Start(t, apitest.WithServer(func(o *apiserver.Options) { o.ServiceCIDRs = []string{"10.43.0.0/29"} })) // six addresses, of which the API has one
	// Deletion waits for ten seconds, which the loop's clock has behind it.
	controllertest.RunAt(t, server, func() time.Time { return time.Now().Add(20 * time.Second) }, servicecidr.New)
	cidrs, services := server.Client().NetworkingV1().ServiceCIDRs(), server.Client().CoreV1().Services("default")
	conditionOf := func(name string) *metav1.Condition {
		c, err := cidrs.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return apimeta.FindStatusCondition(c.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	}
	awaitReady := func(name string) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			c, err := cidrs.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if ready := conditionOf(name); ready == nil || ready.Status != metav1.ConditionTrue || len(c.Finalizers) != 1 {
				return name + " is not ready"
			}
			return ""
		})
	}
	make := func(name, ip string) (*corev1.Service, error) {
		return services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	}
	awaitReady("kubernetes")
	second := netip.MustParsePrefix("10.44.0.0/24")
	if _, err := make("too-early", "10.44.0.9"); !apierrors.IsInvalid(err) {
		t.Fatalf("an address of no range: %v", err)
	}
	if _, err := cidrs.Create(t.Context(), &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "second"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{second.String()}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitReady("second")
	if _, err := make("chosen", "10.44.0.9"); err != nil {
		t.Fatal(err)
	}
	// What the first has left, and then the second.
	var overflow string
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		s, err := make(name, "")
		if err != nil {
			t.Fatal(err)
		}
		if second.Contains(netip.MustParseAddr(s.Spec.ClusterIP)) {
			overflow = name
		}
	}
	if overflow != "f" {
		t.Errorf("the first Service with an address of the second range is %q", overflow)
	}
	if err := cidrs.Delete(t.Context(), "second", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waits := func() {
		t.Helper()
		controllertest.Eventually(t, func() string {
			if c := conditionOf("second"); c == nil || c.Status != metav1.ConditionFalse || c.Reason != networkingv1.ServiceCIDRReasonTerminating {
				return "it does not say that it is terminating"
			}
			return ""
		})
	}
	waits()
	if _, err := make("too-late", "10.44.0.10"); !apierrors.IsInvalid(err) {
		t.Errorf("an address of a range that is being deleted: %v", err)
	}
	if err := services.Delete(t.Context(), "chosen", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waits() // for the other
	if err := services.Delete(t.Context(), "f", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		if _, err := cidrs.Get(t.Context(), "second", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return "it is still there"
		}
		return ""
	})
}
