package rootca_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	certutil "k8s.io/client-go/util/cert"

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

// pemOf returns a certificate authority.
func pemOf(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "kubernetes"}, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: cert.Raw})
}

// The trust bundle is there, comes back when it is deleted, and is replaced when the certificate authority is; bundles of other signers stay.
func TestTrustBundle(t *testing.T) {
	server := apitest.Start(t)
	c := server.Client().CertificatesV1().ClusterTrustBundles()
	first, second := pemOf(t), pemOf(t)
	publisher := func(authority []byte) func(controller.Deps) controller.Loop {
		return func(deps controller.Deps) controller.Loop {
			deps.Config.RootCA = authority
			return rootca.NewTrustBundle(deps)
		}
	}
	published := func(authority []byte) (name string) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			list, err := c.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.signerName=kubernetes.io/kube-apiserver-serving"})
			if err != nil || len(list.Items) != 1 || list.Items[0].Spec.TrustBundle != string(authority) {
				return fmt.Sprintf("one bundle with the authority: %d, %v", len(list.Items), err)
			}
			name = list.Items[0].Name
			return ""
		})
		if !strings.HasPrefix(name, "kubernetes.io:kube-apiserver-serving:") {
			t.Errorf("its name is %s", name)
		}
		return name
	}
	other := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: string(first)}}
	if _, err := c.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stop := controllertest.Run(t, server, publisher(first))
	if err := c.Delete(t.Context(), published(first), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	published(first)
	stop()
	controllertest.Run(t, server, publisher(second))
	published(second)
	if _, err := c.Get(t.Context(), "other", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
