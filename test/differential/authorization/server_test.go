package authorization

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/internal/apiserver/authz/rbac/bootstrap"
	"skiff/skifftest"
)

// TestServer asks a whole server, fresh but for its own roles, every recorded question: skiff, or the one that
// SKIFF_DIFFERENTIAL_KUBECONFIG names. upstream.sh asks upstream itself this way: a recording must repeat.
func TestServer(t *testing.T) {
	client, err := NewClient(server(t))
	if err != nil {
		t.Fatal(err)
	}
	dropOwn(t, client)
	objects, err := Objects("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Create(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.questions")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		questions, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range questions {
			answer, err := client.Ask(t.Context(), q)
			if err != nil {
				t.Errorf("%s:%d: %v", file, q.Line, err)
			} else if !q.Right(answer) {
				t.Errorf("%s:%d: %s\n(-recorded +server):\n%s", file, q.Line, q.Text, cmp.Diff(q.Answers, answer))
			}
		}
	}
}

// dropOwn deletes the roles and bindings that only skiff has, which are not compared.
func dropOwn(t *testing.T, client *Client) {
	t.Helper()
	roles := client.api.RbacV1()
	bindings, err := roles.ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bindings.Items {
		if bootstrap.Own(b.Name) {
			if err := roles.ClusterRoleBindings().Delete(t.Context(), b.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// server returns the administrator's client configuration of the server under test.
func server(t *testing.T) *rest.Config {
	kubeconfig := os.Getenv("SKIFF_DIFFERENTIAL_KUBECONFIG")
	if kubeconfig == "" {
		return skifftest.Start(t).Config()
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
