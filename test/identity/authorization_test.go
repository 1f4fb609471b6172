package identity_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"skiff/test/program"
)

// kubectl runs kubectl against a process's API, as whom a token says.
func kubectl(t *testing.T, p *process, token string, args ...string) (out string, ok bool) {
	t.Helper()
	config := configOf(t, p.data, "admin")
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, config.CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program.Kubectl(t), append([]string{"--server", config.Host, "--certificate-authority", ca, "--token", token, "--cache-dir", t.TempDir()}, args...)...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=/dev/null"}
	text, err := cmd.CombinedOutput()
	return string(text), err == nil
}

// says checks what a kubectl command prints, and whether it succeeds.
func says(t *testing.T, p *process, token string, ok bool, want string, args ...string) {
	t.Helper()
	if out, succeeded := kubectl(t, p, token, args...); succeeded != ok || !strings.Contains(out, want) {
		t.Errorf("as %s: kubectl %s: succeeded %v, want %v, and %q in:\n%s", token, strings.Join(args, " "), succeeded, ok, want, out)
	}
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const people = "token-of-alice,alice,1\ntoken-of-bob,bob,2\ntoken-of-carol,carol,3,\"devs\"\ntoken-of-kubelet,kubelet,4\n"

// TestABAC: a server with the policies of Kubernetes' documentation and the mode ABAC, besides those that its own components need, as kubectl's users see it.
func TestABAC(t *testing.T) {
	const head = `{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": `
	policies := writeFile(t, "policies.jsonl", strings.Join([]string{
		"# Alice can do anything to all resources.",
		head + `{"user": "alice", "namespace": "*", "resource": "*", "apiGroup": "*"}}`,
		"# The kubelet can read any pods, and read and write events.",
		head + `{"user": "kubelet", "namespace": "*", "resource": "pods", "readonly": true}}`,
		head + `{"user": "kubelet", "namespace": "*", "resource": "events"}}`,
		"# Bob can just read pods in the namespace projectCaribou.",
		head + `{"user": "bob", "namespace": "caribou", "resource": "pods", "readonly": true}}`,
		"# Anyone can make read-only requests to all non-resource paths.",
		head + `{"group": "system:authenticated", "readonly": true, "nonResourcePath": "*"}}`,
		head + `{"group": "system:unauthenticated", "readonly": true, "nonResourcePath": "*"}}`,
		`{"group": "devs", "namespace": "caribou", "resource": "configmaps"}`, "",
	}, "\n"))
	p := startProgram(t, "--token-auth-file", writeFile(t, "tokens", people), "--authorization-mode", "Node,RBAC,ABAC", "--authorization-policy-file", policies)
	const alice, bob, carol, kubelet = "token-of-alice", "token-of-bob", "token-of-carol", "token-of-kubelet"

	says(t, p, alice, true, "namespace/caribou created", "create", "namespace", "caribou")
	says(t, p, alice, true, "configmap/x created", "-n", "caribou", "create", "configmap", "x", "--from-literal", "a=b")
	says(t, p, alice, true, "deployment.apps/web created", "-n", "caribou", "create", "deployment", "web", "--image", "nginx")
	says(t, p, alice, true, "yes", "auth", "can-i", "delete", "nodes")
	says(t, p, alice, true, "*.*", "auth", "can-i", "--list", "-n", "caribou")

	says(t, p, bob, true, "", "-n", "caribou", "get", "pods")
	says(t, p, bob, true, "yes", "auth", "can-i", "watch", "pods", "-n", "caribou")
	says(t, p, bob, false, "no", "auth", "can-i", "create", "pods", "-n", "caribou")
	says(t, p, bob, false, `Error from server (Forbidden): pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default": abac: No policy matched.`, "get", "pods")
	says(t, p, bob, false, `User "bob" cannot list resource "secrets" in API group "" in the namespace "caribou": abac: No policy matched.`, "-n", "caribou", "get", "secrets")
	says(t, p, bob, false, `User "bob" cannot create resource "pods" in API group "" in the namespace "caribou": abac: No policy matched.`, "-n", "caribou", "run", "x", "--image", "nginx")
	says(t, p, bob, true, "pods ", "auth", "can-i", "--list", "-n", "caribou")

	says(t, p, carol, true, "configmap/y created", "-n", "caribou", "create", "configmap", "y")
	says(t, p, carol, false, `cannot list resource "pods"`, "-n", "caribou", "get", "pods")

	says(t, p, kubelet, true, "", "get", "pods", "-A")
	says(t, p, kubelet, false, `User "kubelet" cannot list resource "services" in API group "" at the cluster scope: abac: No policy matched.`, "get", "services", "-A")
	says(t, p, kubelet, true, "yes", "auth", "can-i", "create", "events")
	says(t, p, kubelet, true, "ok", "get", "--raw", "/readyz")
	says(t, p, kubelet, false, "forbidden", "delete", "--raw", "/logs")
}

// hook starts the server of an authorization webhook, and returns a kubeconfig for it and how often it was asked.
func hook(t *testing.T, answer func(*authorizationv1.SubjectAccessReview) string) (kubeconfig string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.APIVersion != "authorization.k8s.io/v1" {
			t.Errorf("the webhook was asked %+v, %v", review, err)
		}
		fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":%s}`, answer(&review))
	}))
	t.Cleanup(s.Close)
	ca, _ := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return writeFile(t, "webhook.kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: s, user: u}}],
clusters: [{name: s, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {}}]}`, s.URL, ca)), asked
}

// TestAuthorizationWebhook: a configuration with a webhook that is asked first about people, and denies or allows; then with one that fails; reloaded in between.
func TestAuthorizationWebhook(t *testing.T) {
	const configuration = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: gate.example.com
  webhook:
    timeout: 3s
    authorizedTTL: 1m
    unauthorizedTTL: 1m
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: %s
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}
    matchConditions:
    - expression: "has(request.resourceAttributes) && request.user in ['alice', 'bob']"
- {type: Node, name: node}
- {type: RBAC, name: rbac}
`
	kubeconfig, asked := hook(t, func(r *authorizationv1.SubjectAccessReview) string {
		a := r.Spec.ResourceAttributes
		team := a.LabelSelector != nil && len(a.LabelSelector.Requirements) == 1 && a.LabelSelector.Requirements[0].Key == "team"
		switch {
		case r.Spec.User == "bob":
			return `{"allowed":false,"denied":true,"reason":"bob is on holiday"}`
		case a.Resource == "configmaps" && team:
			return `{"allowed":true,"reason":"of her team"}`
		}
		return `{"allowed":false,"reason":"ask her team"}`
	})
	file := writeFile(t, "authorization.yaml", fmt.Sprintf(configuration, "Deny", kubeconfig))
	p := startProgram(t, "--token-auth-file", writeFile(t, "tokens", people), "--authorization-config", file)
	const alice, bob, carol = "token-of-alice", "token-of-bob", "token-of-carol"

	before := asked.Load()
	says(t, p, bob, false, `Error from server (Forbidden): configmaps is forbidden: User "bob" cannot list resource "configmaps" in API group "" in the namespace "default": bob is on holiday`, "get", "configmaps")
	says(t, p, bob, false, "bob is on holiday", "get", "configmaps")
	if n := asked.Load() - before; n != 1 {
		t.Errorf("the webhook was asked %d times about one question", n)
	}
	says(t, p, alice, false, `User "alice" cannot list resource "configmaps" in API group "" in the namespace "default": gate.example.com: ask her team`, "get", "configmaps")
	says(t, p, alice, true, "No resources found", "get", "configmaps", "-l", "team=x")
	before = asked.Load()
	says(t, p, carol, false, `User "carol" cannot list resource "configmaps"`, "get", "configmaps")
	if n := asked.Load() - before; n != 0 {
		t.Errorf("the webhook was asked %d times about a user that its condition excludes", n)
	}

	nowhere := writeFile(t, "nowhere.kubeconfig", `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: s, user: u}}],
clusters: [{name: s, cluster: {server: "https://127.0.0.1:1"}}], users: [{name: u, user: {}}]}`)
	reload := func(policy, config, want string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(fmt.Sprintf(configuration, policy, config)), 0o600); err != nil {
			t.Fatal(err)
		}
		wait(t, "the configuration is loaded again", func() error {
			if out, _ := kubectl(t, p, alice, "get", "configmaps", "-l", "team=x"); !strings.Contains(out, want) {
				return fmt.Errorf("alice sees %s", out)
			}
			return nil
		})
	}
	reload("NoOpinion", nowhere, `an error on the server ("Internal Server Error:`)
	says(t, p, carol, false, "Forbidden", "get", "configmaps")
	reload("Nonsense", kubeconfig, `an error on the server ("Internal Server Error:`) // stays as it was
	reload("Deny", kubeconfig, "No resources found")
	says(t, p, carol, true, "ok", "get", "--raw", "/healthz")
}

// TestAuthorizationMistakes: what the flags and files of authorization say wrong stops the start, with the file and the field.
func TestAuthorizationMistakes(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"authorization-mode ABAC's authorization policy file not passed", []string{"--authorization-mode", "ABAC"}},
		{"line 2: {\"user\": 1}", []string{"--authorization-mode", "ABAC", "--authorization-policy-file", writeFile(t, "policies", "\n{\"user\": 1}\n")}},
		{"authorization-mode Webhook's authorization config file not passed", []string{"--authorization-mode", "RBAC,Webhook"}},
		{"can not be specified when --authorization-mode or --authorization-webhook-* flags are defined", []string{"--authorization-mode", "RBAC", "--authorization-config", "/none"}},
		{"can not be specified when --authorization-mode or --authorization-webhook-* flags are defined", []string{"--authorization-webhook-version", "v1", "--authorization-config", "/none"}},
		{"authorizers[0].name: Required value", []string{"--authorization-config", writeFile(t, "config", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: RBAC}]\n")}},
	} {
		code, out, errs := program.Run(t, t.TempDir(), append([]string{"server", "--no-node", "--data-dir", t.TempDir(), "--port", program.Port(t)}, c.args...)...)
		if code == 0 || !strings.Contains(out+errs, c.want) {
			t.Errorf("%v: exit code %d, want %q in:\n%s%s", c.args, code, c.want, out, errs)
		}
	}
}
