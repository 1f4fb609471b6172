package identity_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	podsecuritytest "k8s.io/pod-security-admission/test"
	"k8s.io/utils/ptr"

	"skiff/internal/cluster"
	"skiff/skifftest"
)

// TestPodSecurityLikeUpstream runs the integration suite of k8s.io/pod-security-admission: every pod and deployment it has, against every level and every
// version that differs from the one before.
func TestPodSecurityLikeUpstream(t *testing.T) {
	config := skifftest.Start(t).Config()
	config.QPS = -1
	podsecuritytest.Run(t, podsecuritytest.Options{ClientConfig: config})
}

// warningRecorder records the warnings that a client receives.
type warningRecorder struct {
	mu   sync.Mutex
	list []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (h *warningRecorder) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, text)
}

// take returns the warnings since its last call.
func (h *warningRecorder) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.list
	h.list = nil
	return list
}

// listening returns a client whose warnings are recorded.
func listening(t *testing.T, config *rest.Config) (kubernetes.Interface, *warningRecorder) {
	t.Helper()
	warnings := &warningRecorder{}
	config = rest.CopyConfig(config)
	config.WarningHandler, config.QPS = warnings, -1
	return clientOf(t, config), warnings
}

func privileged(name string) *corev1.Pod {
	pod := newPod(name)
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	return pod
}

// TestPodSecurity: the enforce label of a namespace is applied over the network to every way to change a pod.
func TestPodSecurity(t *testing.T) {
	client, warnings := listening(t, skifftest.Start(t).Config())
	pods := client.CoreV1().Pods("default")
	if _, err := pods.Create(t.Context(), privileged("before"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	label := func(level string) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":%q}}}`, level)
		_, err := client.CoreV1().Namespaces().Patch(t.Context(), "default", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
		return err
	}
	const wrong = `Namespace "default" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted`
	if err := label("strict"); err == nil || err.Error() != wrong {
		t.Errorf("a level that does not exist: %v", err)
	}
	want := []string{`existing pods in namespace "default" violate the new PodSecurity enforce level "baseline:latest"`, "before: privileged"}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) { // the server observes the pod a moment after it was written
		warnings.take()
		if err := label("baseline"); err != nil {
			t.Fatal(err)
		}
		got := warnings.take()
		if slices.Equal(got, want) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("warned with %q, want %q", got, want)
		}
		if err := label("privileged"); err != nil {
			t.Fatal(err)
		}
	}

	const reason = `privileged (container "c" must not set securityContext.privileged=true)`
	forbids(t, `pods "after" is forbidden: violates PodSecurity "baseline:latest": `+reason, func() error {
		_, err := pods.Create(t.Context(), privileged("after"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return fmt.Errorf("the label is not known yet") // the server observes it a moment after it was written
		}
		return err
	})
	forbids(t, `pods "after" is forbidden: violates PodSecurity "baseline:latest": `+reason, func() error {
		_, err := pods.Create(t.Context(), privileged("after"), metav1.CreateOptions{})
		return err
	})
	const old = `pods "before" is forbidden: violates PodSecurity "baseline:latest": ` + reason
	forbids(t, old, func() error {
		_, err := pods.Patch(t.Context(), "before", "application/strategic-merge-patch+json", []byte(`{"spec":{"containers":[{"name":"c","image":"other"}]}}`), metav1.PatchOptions{})
		return err
	})
	forbids(t, old, func() error {
		patch := `{"spec":{"ephemeralContainers":[{"name":"debug","image":"i"}]}}`
		_, err := pods.Patch(t.Context(), "before", "application/strategic-merge-patch+json", []byte(patch), metav1.PatchOptions{}, "ephemeralcontainers")
		return err
	})
	if _, err := pods.Patch(t.Context(), "before", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("labels of a pod that is there: %v", err)
	}

	warnings.take()
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: privileged("").Spec}}}
	if _, err := client.AppsV1().Deployments("default").Create(t.Context(), deployment, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, want := warnings.take(), []string{`would violate PodSecurity "baseline:latest": ` + reason}; !slices.Equal(got, want) {
		t.Errorf("a deployment is answered with %q, want %q", got, want)
	}
}

// TestPodSecurityConfiguration: defaults and exemptions come from the file of --admission-control-config-file, and a file with a mistake stops the start.
func TestPodSecurityConfiguration(t *testing.T) {
	file := filepath.Join(t.TempDir(), "admission.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const config = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline, enforce-version: v1.37}
    exemptions: {namespaces: [trusted]}
`
	for mistake, want := range map[string]string{
		strings.Replace(config, "baseline", "strict", 1):                           `plugin "PodSecurity": plugins[0].configuration: defaults.enforce: Invalid value: "strict": must be one of privileged, baseline, restricted`,
		strings.Replace(config, "exemptions", "exceptions", 1):                     `unknown field "exceptions"`,
		strings.Replace(config, "name: PodSecurity", "name: PodSecurityPolicy", 1): `plugin "PodSecurityPolicy" is unknown`,
		strings.Replace(config, "name: PodSecurity", "name: ResourceQuota", 1):     `plugin "ResourceQuota" takes no configuration in skiff`,
	} {
		write(mistake)
		server, err := cluster.Start(t.Context(), cluster.Config{DataDir: t.TempDir(), Port: 1, Controllers: []string{aggregation}, AdmissionConfigFile: file})
		if err == nil {
			server.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("the start ended with %v, want an error of %s that says %s", err, file, want)
		}
	}
	write(config)
	data := startCluster(t, func(c *cluster.Config) { c.AdmissionConfigFile = file })
	client := clientOf(t, configOf(t, data, "admin"))
	newNamespace(t, client, "trusted")
	for _, namespace := range []string{"default", "trusted"} {
		defaultAccount(t, client, namespace)
	}
	if _, err := client.CoreV1().Pods("trusted").Create(t.Context(), privileged("p"), metav1.CreateOptions{}); err != nil {
		t.Errorf("in an exempt namespace: %v", err)
	}
	_, err := client.CoreV1().Pods("default").Create(t.Context(), privileged("p"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `violates PodSecurity "baseline:v1.37"`) {
		t.Errorf("in another one: %v", err)
	}
}
