package serviceaccount_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/serviceaccount"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) { stories.Run(t, serviceaccount.New, stories.Options{}) }

// Existing and new namespaces have a default service account, and get another when it is deleted.
func TestEveryNamespace(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, serviceaccount.New)
	c := server.Client().CoreV1()
	if _, err := c.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"default", "kube-system", "shop"} {
		var first *corev1.ServiceAccount
		controllertest.Eventually(t, func() string {
			var err error
			if first, err = c.ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
				return err.Error()
			}
			return ""
		})
		if err := c.ServiceAccounts(namespace).Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() string {
			second, err := c.ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if second.UID == first.UID {
				return "another account"
			}
			return ""
		})
	}
}
