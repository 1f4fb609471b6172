package identity_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/cluster"
)

// A Secret that asks for a service account's token gets one that the API server takes, until the Secret is deleted.
func TestTokenInSecret(t *testing.T) {
	dir := startCluster(t, func(c *cluster.Config) { c.Controllers = append(c.Controllers, "serviceaccount-token-controller") })
	config := configOf(t, dir, "admin")
	admin := clientOf(t, config)
	newAccount(t, admin, "default", "robot")
	secrets := admin.CoreV1().Secrets("default")
	_, err := secrets.Create(t.Context(), &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken,
		ObjectMeta: metav1.ObjectMeta{Name: "robot", Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var token string
	wait(t, "a token", func() error {
		secret, err := secrets.Get(t.Context(), "robot", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if token = string(secret.Data[corev1.ServiceAccountTokenKey]); token == "" || len(secret.Data[corev1.ServiceAccountRootCAKey]) == 0 {
			return errors.New("no token")
		}
		return nil
	})
	robot := clientOf(t, withToken(config, token))
	_, err = robot.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) { // authenticated, and without rights
		t.Errorf("listed pods: %v", err)
	}
	if err := secrets.Delete(t.Context(), "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "the token is refused", func() error {
		if _, err := robot.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("listed pods: %v", err)
		}
		return nil
	})
}
