package tokens_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/serviceaccount/tokens"
	"skiff/internal/controller/stories"
)

func withTokens(deps controller.Deps) controller.Loop {
	deps.Config.RootCA = []byte("THE AUTHORITY")
	deps.Config.LegacyToken = func(account *corev1.ServiceAccount, secret *corev1.Secret) (string, error) {
		return "token of " + account.Name + " in " + secret.Name, nil
	}
	return tokens.New(deps)
}

func TestStories(t *testing.T) {
	stories.Run(t, withTokens, stories.Options{Show: func(a controller.Action) string {
		verb, _, obj, ok := controller.Written(a)
		if !ok || verb != "update" {
			return ""
		}
		return stories.YAML(obj, "data") + stories.YAML(obj, "secrets") + stories.YAML(obj, "metadata", "annotations")
	}})
}

// A Secret that asks for a token before its account is there gets it then, and goes with the account; the account forgets a Secret that is deleted.
func TestSecrets(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, withTokens)
	c := server.Client().CoreV1()
	account, err := c.ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}, Secrets: []corev1.ObjectReference{{Name: "first"}, {Name: "second"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"}}, Type: corev1.SecretTypeServiceAccountToken}
		if _, err := c.Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() string {
			secret, err := c.Secrets("default").Get(t.Context(), name, metav1.GetOptions{})
			if err != nil || string(secret.Data["token"]) != "token of robot in "+name || string(secret.Data["namespace"]) != "default" || string(secret.Data["ca.crt"]) != "THE AUTHORITY" ||
				secret.Annotations[corev1.ServiceAccountUIDKey] != string(account.UID) {
				return fmt.Sprintf("a token: %v, %v", secret, err)
			}
			return ""
		})
	}
	if err := c.Secrets("default").Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		account, err := c.ServiceAccounts("default").Get(t.Context(), "robot", metav1.GetOptions{})
		if err != nil || len(account.Secrets) != 1 || account.Secrets[0].Name != "second" {
			return fmt.Sprintf("one reference: %v, %v", account.Secrets, err)
		}
		return ""
	})
	if err := c.ServiceAccounts("default").Delete(t.Context(), "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		if _, err := c.Secrets("default").Get(t.Context(), "second", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the end of the token: %v", err)
		}
		return ""
	})
}
