package webhook_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// These tests do what upstream's conformance specs of admission webhooks do, apart from those about custom resources.

type rules = []admissionregistrationv1.RuleWithOperations

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

func pod(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

// hang is a webhook that does not answer.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // until the body is read, net/http does not notice that the client has gone
	<-r.Context().Done()
}

// TestDenyPodsAndConfigMaps: "should be able to deny pod and configmap creation".
func TestDenyPodsAndConfigMaps(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/configmaps", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		var m corev1.ConfigMap
		if err := json.Unmarshal(r.Object.Raw, &m); err != nil || m.Data["webhook-e2e-test"] == "webhook-disallow" || m.Kind != "ConfigMap" || m.APIVersion != "v1" {
			return deny("the configmap contains unwanted key and value")(r)
		}
		return allow(r)
	})
	c.hooks.raw("/hang", hang)
	exempt := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "skip", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"yes"}}}}
	c.validating("deny",
		validatingHook{Name: "deny-unwanted-configmap-data.k8s.io", ClientConfig: c.byService("/configmaps"), Rules: rules{rule("", "v1", "configmaps", "CREATE", "UPDATE")}, NamespaceSelector: exempt},
		validatingHook{Name: "deny-unwanted-pod.k8s.io", ClientConfig: c.byURL("/hang"), Rules: rules{rule("", "v1", "pods", "CREATE")}, TimeoutSeconds: ptr.To[int32](1)})
	maps := c.api.CoreV1().ConfigMaps("default")
	bad := map[string]string{"webhook-e2e-test": "webhook-disallow"}
	const refused = `admission webhook "deny-unwanted-configmap-data.k8s.io" denied the request: the configmap contains unwanted key and value`
	_, err := maps.Create(t.Context(), configMap("bad", bad), metav1.CreateOptions{})
	c.expect(err, refused)
	good, err := maps.Create(t.Context(), configMap("good", map[string]string{"a": "b"}), metav1.CreateOptions{})
	c.must(err)
	good.Data = bad
	_, err = maps.Update(t.Context(), good, metav1.UpdateOptions{})
	c.expect(err, refused)
	_, err = maps.Patch(t.Context(), "good", types.MergePatchType, []byte(`{"data":{"webhook-e2e-test":"webhook-disallow"}}`), metav1.PatchOptions{})
	c.expect(err, refused)
	_, err = c.api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "exempt", Labels: map[string]string{"skip": "yes"}}}, metav1.CreateOptions{})
	c.must(err)
	_, err = c.api.CoreV1().ConfigMaps("exempt").Create(t.Context(), configMap("bad", bad), metav1.CreateOptions{})
	c.expect(err, "")
	_, err = c.api.CoreV1().Pods("default").Create(t.Context(), pod("hanging", nil), metav1.CreateOptions{})
	c.expect(err, `Internal error occurred: failed calling webhook "deny-unwanted-pod.k8s.io": failed to call webhook: Post "`+*c.byURL("/hang?timeout=1s").URL+`": context deadline exceeded`)
	if _, err := c.api.CoreV1().Pods("default").Get(t.Context(), "hanging", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod that was refused exists: %v", err)
	}
}

// TestDenyAttach: "should be able to deny attaching pod". It looks at what a webhook is told about a connection, too.
func TestDenyAttach(t *testing.T) {
	c := newCluster(t)
	reviews := make(chan admissionv1.AdmissionRequest, 10)
	c.hooks.review("/connect", func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		reviews <- *r
		return deny("attaching to pod 'to-be-attached-pod' is not allowed")(r)
	})
	c.validating("attach", validatingHook{Name: "deny-attaching-pod.k8s.io", ClientConfig: c.byService("/connect"),
		Rules: rules{rule("", "v1", "pods/attach", "CONNECT"), rule("", "v1", "pods/exec", "CONNECT"), rule("", "v1", "pods/portforward", "CONNECT"), rule("", "v1", "services/proxy", "CONNECT")}})
	_, err := c.api.CoreV1().Pods("default").Create(t.Context(), pod("p", nil), metav1.CreateOptions{})
	c.must(err)
	for _, request := range []struct{ resource, name, parameters, path, kind, object string }{
		{"pods", "p", "attach", "?stdin=true&container=c", "PodAttachOptions", `{"kind":"PodAttachOptions","apiVersion":"v1","stdin":true,"container":"c"}`},
		{"pods", "p", "exec", "?stdout=1&tty=0&command=a&command=b", "PodExecOptions", `{"kind":"PodExecOptions","apiVersion":"v1","stdout":true,"command":["a","b"]}`},
		{"pods", "p", "portforward", "?ports=80&ports=81", "PodPortForwardOptions", `{"kind":"PodPortForwardOptions","apiVersion":"v1","ports":[80,81]}`},
		{"services", "s", "proxy", "/a/b", "ServiceProxyOptions", `{"kind":"ServiceProxyOptions","apiVersion":"v1","path":"/a/b"}`},
	} {
		err := c.api.CoreV1().RESTClient().Post().RequestURI("/api/v1/namespaces/default/" + request.resource + "/" + request.name + "/" + request.parameters + request.path).Do(t.Context()).Error()
		c.expect(err, `admission webhook "deny-attaching-pod.k8s.io" denied the request: attaching to pod 'to-be-attached-pod' is not allowed`)
		r := <-reviews
		if r.Operation != "CONNECT" || r.Kind.Kind != request.kind || r.Resource.Resource != request.resource || r.SubResource != request.parameters || r.Name != request.name ||
			r.Namespace != "default" || string(r.Object.Raw) != request.object || len(r.OldObject.Raw) > 0 || len(r.Options.Raw) > 0 || r.UserInfo.Username == "" || *r.DryRun {
			t.Errorf("the webhook was told %+v of %s", r, r.Object.Raw)
		}
	}
}

// TestFailClosed: "should unconditionally reject operations on fail closed webhook".
func TestFailClosed(t *testing.T) {
	c := newCluster(t)
	wrong := c.byService("/configmaps")
	wrong.CABundle = newCA(t)
	c.validating("closed", validatingHook{Name: "fail-closed.k8s.io", ClientConfig: wrong, Rules: rules{rule("", "v1", "secrets", "CREATE")}})
	_, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed calling webhook "fail-closed.k8s.io": failed to call webhook: Post "https://hooks.default.svc:`) ||
		!strings.Contains(err.Error(), `/configmaps?timeout=10s": tls: failed to verify certificate: x509: certificate signed by unknown authority`) {
		t.Errorf("failed with %v", err)
	}
}

// TestMutateConfigMap: "should mutate configmap", by two webhooks in order.
func TestMutateConfigMap(t *testing.T) {
	c := newCluster(t)
	stage := func(path, before, value string) {
		c.hooks.review(path, func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			var m corev1.ConfigMap
			if err := json.Unmarshal(r.Object.Raw, &m); err != nil || m.Data[before] != "yes" {
				return allow(r)
			}
			return patch(`[{"op":"add","path":"/data/` + value + `","value":"yes"}]`)(r)
		})
	}
	stage("/1", "mutation-start", "mutation-stage-1")
	stage("/2", "mutation-stage-1", "mutation-stage-2")
	on := rules{rule("", "v1", "configmaps", "CREATE")}
	c.mutating("mutate", mutatingHook{Name: "stage-1.k8s.io", ClientConfig: c.byService("/1"), Rules: on}, mutatingHook{Name: "stage-2.k8s.io", ClientConfig: c.byURL("/2"), Rules: on})
	m, err := c.api.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("m", map[string]string{"mutation-start": "yes"}), metav1.CreateOptions{})
	c.must(err)
	if len(m.Data) != 3 || m.Data["mutation-stage-1"] != "yes" || m.Data["mutation-stage-2"] != "yes" {
		t.Errorf("the data are %v", m.Data)
	}
}

// TestMutatePodAndDefault: "should mutate pod and apply defaults after mutation". Unknown fields of the patch are dropped.
func TestMutatePodAndDefault(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/pods", patch(`[{"op":"add","path":"/spec/initContainers","value":[{"image":"webhook-added-image","name":"webhook-added-init-container","resources":{},"unknown":1}]}]`))
	c.mutating("pods", mutatingHook{Name: "adding-init-container.k8s.io", ClientConfig: c.byService("/pods"), Rules: rules{rule("", "v1", "pods", "CREATE")}})
	p, err := c.api.CoreV1().Pods("default").Create(t.Context(), pod("p", nil), metav1.CreateOptions{})
	c.must(err)
	if len(p.Spec.InitContainers) != 1 || p.Spec.InitContainers[0].Name != "webhook-added-init-container" || p.Spec.InitContainers[0].TerminationMessagePolicy != "File" {
		t.Errorf("the init containers are %+v", p.Spec.InitContainers)
	}
}

// TestConfigurationsAreExempt: "should not be able to mutate or prevent deletion of webhook configuration objects".
func TestConfigurationsAreExempt(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/deny", deny("no"))
	c.hooks.review("/label", patch(`[{"op":"add","path":"/metadata/labels/mutated","value":"yes"}]`))
	all := rules{rule("*", "*", "*")}
	c.hooks.review("/marker", deny("marker"))
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"victim": "yes"}}
	c.validating("deny", validatingHook{Name: "deny.k8s.io", ClientConfig: c.byURL("/deny"), Rules: all, ObjectSelector: selector})
	c.mutating("label", mutatingHook{Name: "label.k8s.io", ClientConfig: c.byURL("/label"), Rules: all, ObjectSelector: selector})
	configurations := c.api.AdmissionregistrationV1()
	victim := metav1.ObjectMeta{Name: "victim", Labels: map[string]string{"victim": "yes"}}
	v, err := configurations.ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: victim}, metav1.CreateOptions{})
	c.must(err)
	m, err := configurations.MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: victim}, metav1.CreateOptions{})
	c.must(err)
	if v.Labels["mutated"] != "" || m.Labels["mutated"] != "" {
		t.Errorf("webhooks have changed configurations: %v, %v", v.Labels, m.Labels)
	}
	c.must(configurations.ValidatingWebhookConfigurations().Delete(t.Context(), "victim", metav1.DeleteOptions{}))
	c.must(configurations.MutatingWebhookConfigurations().Delete(t.Context(), "victim", metav1.DeleteOptions{}))
	_, err = c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: victim}, metav1.CreateOptions{})
	c.expect(err, `admission webhook "deny.k8s.io" denied the request: no`)
}

// TestTimeout: "should honor timeout".
func TestTimeout(t *testing.T) {
	c := newCluster(t)
	c.hooks.raw("/slow", func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(1300 * time.Millisecond):
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(w).Encode(&review)
	})
	register := func(resource string, timeout *int32, policy admissionregistrationv1.FailurePolicyType) {
		c.validating(resource, validatingHook{Name: "slow.k8s.io", ClientConfig: c.byService("/slow"), Rules: rules{rule("", "v1", resource, "CREATE")}, TimeoutSeconds: timeout, FailurePolicy: &policy})
	}
	register("configmaps", ptr.To[int32](1), admissionregistrationv1.Ignore)
	register("secrets", ptr.To[int32](1), admissionregistrationv1.Fail)
	register("pods", ptr.To[int32](10), admissionregistrationv1.Fail)
	_, err := c.api.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("m", nil), metav1.CreateOptions{})
	c.expect(err, "")
	_, err = c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), `/slow?timeout=1s": context deadline exceeded`) {
		t.Errorf("failed with %v", err)
	}
	_, err = c.api.CoreV1().Pods("default").Create(t.Context(), pod("p", nil), metav1.CreateOptions{})
	c.expect(err, "")
}
