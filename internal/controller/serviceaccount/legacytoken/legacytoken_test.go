package legacytoken_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/serviceaccount/legacytoken"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) { stories.Run(t, legacytoken.NewCleaner, stories.Options{}) }

// A generated token is labelled a year after the cluster began, and deleted a year after that. A token that a person made stays.
func TestTwoYears(t *testing.T) {
	server := apitest.Start(t)
	c := server.Client().CoreV1()
	account, err := c.ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "builder"}, Secrets: []corev1.ObjectReference{{Name: "generated"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"generated", "made"} {
		_, err := c.Secrets("default").Create(t.Context(), &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "builder", corev1.ServiceAccountUIDKey: string(account.UID)}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	var ahead atomic.Int64
	after := func(days int) (stop func()) {
		ahead.Store(int64(days) * int64(24*time.Hour))
		return controllertest.RunAt(t, server, func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }, legacytoken.NewCleaner)
	}
	stop := after(368)
	controllertest.Eventually(t, func() string {
		secret, err := c.Secrets("default").Get(t.Context(), "generated", metav1.GetOptions{})
		if err != nil || secret.Labels["kubernetes.io/legacy-token-invalid-since"] == "" {
			return fmt.Sprintf("the label: %v, %v", secret.Labels, err)
		}
		return ""
	})
	stop()
	defer after(2 * 368)()
	controllertest.Eventually(t, func() string {
		if _, err := c.Secrets("default").Get(t.Context(), "generated", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the end of the token: %v", err)
		}
		return ""
	})
	made, err := c.Secrets("default").Get(t.Context(), "made", metav1.GetOptions{})
	if err != nil || len(made.Labels) > 0 {
		t.Errorf("the token that was made: %v, %v", made.Labels, err)
	}
}
