package rootca_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apitest"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/serviceaccount/rootca"
	"skiff/internal/controller/stories"
)

func publisher(deps controller.Deps) controller.Loop {
	deps.Config.RootCA = []byte("THE AUTHORITY")
	return rootca.New(deps)
}

func TestStories(t *testing.T) {
	stories.Run(t, publisher, stories.Options{Show: func(a controller.Action) string {
		_, _, obj, ok := controller.Written(a)
		if !ok {
			return ""
		}
		return stories.YAML(obj, "data") + stories.YAML(obj, "metadata", "annotations")
	}})
}

// Every namespace has the certificate authority, and gets it again after the ConfigMap was changed or deleted.
func TestEveryNamespace(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, publisher)
	c := server.Client().CoreV1()
	if _, err := c.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	published := func(namespace string) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			cm, err := c.ConfigMaps(namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
			switch {
			case err != nil:
				return err.Error()
			case len(cm.Data) != 1 || cm.Data["ca.crt"] != "THE AUTHORITY" || cm.Annotations["kubernetes.io/description"] == "":
				return "the right content"
			}
			return ""
		})
	}
	for _, namespace := range []string{"default", "kube-system", "shop"} {
		published(namespace)
		change := []byte(`{"data":{"ca.crt":"a forgery"},"metadata":{"annotations":null}}`)
		if _, err := c.ConfigMaps(namespace).Patch(t.Context(), "kube-root-ca.crt", types.MergePatchType, change, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		published(namespace)
		if err := c.ConfigMaps(namespace).Delete(t.Context(), "kube-root-ca.crt", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		published(namespace)
	}
}
