package identity_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"skiff/skifftest"
)

// TestAdminAccess: admin access to devices is allowed only in namespaces with the label for it.
func TestAdminAccess(t *testing.T) {
	client := skifftest.Start(t).Client()
	claims := client.ResourceV1().ResourceClaims("default")
	request := []resourcev1.DeviceRequest{{Name: "all", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AdminAccess: ptr.To(true)}}}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: request}}}
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Spec: resourcev1.ResourceClaimTemplateSpec{Spec: claim.Spec}}
	create := func() []error {
		_, one := claims.Create(t.Context(), claim, metav1.CreateOptions{})
		_, two := client.ResourceV1().ResourceClaimTemplates("default").Create(t.Context(), template, metav1.CreateOptions{})
		return []error{one, two}
	}
	for _, err := range create() {
		const want = "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("in a namespace without the label: %v", err)
		}
	}
	mark := []byte(`{"metadata":{"labels":{"resource.kubernetes.io/admin-access":"true"}}}`)
	if _, err := client.CoreV1().Namespaces().Patch(t.Context(), "default", "application/merge-patch+json", mark, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, err := range create() {
		if err != nil {
			t.Errorf("in one with it: %v", err)
		}
	}
}

// TestClaimStatus: the right to update the status of claims does not include allocating devices or reporting for their drivers.
func TestClaimStatus(t *testing.T) {
	server := skifftest.Start(t)
	admin := server.Client()
	user, err := kubernetes.NewForConfig(server.ConfigFor("plugin"))
	if err != nil {
		t.Fatal(err)
	}
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "one", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}}}}}}
	if claim, err = admin.ResourceV1().ResourceClaims("default").Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rules := []rbacv1.PolicyRule{{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims/status"}, Verbs: []string{"update"}}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "plugin"}, Rules: rules}
	if role, err = admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "plugin"}, RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "plugin"},
		Subjects: []rbacv1.Subject{{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "plugin"}}}
	if _, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	update := func() error {
		updated, err := user.ResourceV1().ResourceClaims("default").UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
		if err == nil {
			claim = updated
		}
		return err
	}
	// try updates until the roles are known, which is a moment after they were written.
	refused := func(want string) {
		t.Helper()
		wait(t, "a refusal", func() error {
			err := update()
			if err == nil {
				t.Fatal("it was done")
			}
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
				return err
			}
			return nil
		})
	}
	grant := func(rule rbacv1.PolicyRule) {
		t.Helper()
		role.Rules = append(role.Rules, rule)
		if role, err = admin.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	claim.Status.Allocation = &resourcev1.AllocationResult{
		Devices:      resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{Request: "one", Driver: "gpu.example.com", Pool: "p", Device: "d"}}},
		NodeSelector: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}}}},
	}
	refused(`status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: ` +
		`resourceclaims.resource.k8s.io is forbidden: User "plugin" cannot update resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope`)
	grant(rbacv1.PolicyRule{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims/binding"}, Verbs: []string{"update"}})
	wait(t, "an allocation", update)

	claim.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "gpu.example.com", Pool: "p", Device: "d", Data: &runtime.RawExtension{Raw: []byte(`{"a":1}`)}}}
	refused(`status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]" permission: ` +
		`resourceclaims.resource.k8s.io "gpu.example.com" is forbidden: User "plugin" cannot arbitrary-node:update resource "resourceclaims/driver"`)
	grant(rbacv1.PolicyRule{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceclaims/driver"}, ResourceNames: []string{"gpu.example.com"}, Verbs: []string{"arbitrary-node:update"}})
	wait(t, "a device's status", update)
}
