package webhook_test

import (
	"crypto/elliptic"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apitest"
)

// seen collects what a webhook is told, as lines.
type seen struct {
	mu    sync.Mutex
	lines []string
}

// take returns the lines since the last call.
func (s *seen) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := s.lines
	s.lines = nil
	return lines
}

// record is an answer that allows everything and records it.
func (s *seen) record(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	name := func(raw []byte) string {
		if len(raw) == 0 {
			return "-"
		}
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(raw, &o); err != nil {
			return err.Error()
		}
		return o.APIVersion + "." + o.Kind + "/" + o.Name
	}
	options := "-"
	if len(r.Options.Raw) > 0 {
		options = string(r.Options.Raw)
	}
	dry := ""
	if *r.DryRun {
		dry = " dry"
	}
	sub := r.SubResource
	if r.RequestSubResource != sub {
		sub += "?" + r.RequestSubResource
	}
	line := fmt.Sprintf("%s %s/%s/%s/%s as %s %s/%s%s object=%s old=%s options=%s", r.Operation, r.RequestResource.Group, r.RequestResource.Version, r.RequestResource.Resource, sub,
		r.Kind.Version+"."+r.Kind.Kind, r.Namespace, r.Name, dry, name(r.Object.Raw), name(r.OldObject.Raw), options)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
	return allow(r)
}

// TestReviews: what webhooks are told about each way to write.
func TestReviews(t *testing.T) {
	c := newCluster(t, apitest.WithServer(func(o *apiserver.Options) {
		o.Authentication.ServiceAccountIssuers = []string{"https://example.com"}
		o.Authentication.ServiceAccountSigningKey = authntest.NewKey(t, elliptic.P256())
	}))
	var log seen
	c.hooks.review("/record", log.record)
	c.validating("record", validatingHook{Name: "record.k8s.io", ClientConfig: c.byService("/record"), Rules: rules{rule("", "*", "configmaps"), rule("", "*", "namespaces/*"), rule("", "*", "pods/*"),
		rule("", "*", "serviceaccounts/token"), rule("apps", "*", "deployments/scale"), rule("autoscaling", "v2", "horizontalpodautoscalers/*")},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "marker", Operator: metav1.LabelSelectorOpDoesNotExist}}}})
	api := c.api.CoreV1().RESTClient()
	send := func(method, path, contentType, body string, want ...string) {
		t.Helper()
		log.take()
		if err := api.Verb(method).RequestURI(path).SetHeader("Content-Type", contentType).Body([]byte(body)).Do(t.Context()).Error(); err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
		if got := log.take(); !slices.Equal(got, want) {
			t.Errorf("%s %s:\n%s\nwant\n%s", method, path, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	const js, merge, apply = "application/json", "application/merge-patch+json", "application/apply-patch+yaml"
	const maps, pods = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/pods"
	send("POST", maps+"?fieldManager=f&fieldValidation=Strict", js, `{"metadata":{"name":"a"}}`,
		`CREATE /v1/configmaps/ as v1.ConfigMap default/a object=v1.ConfigMap/a old=- options={"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"f","fieldValidation":"Strict"}`)
	send("POST", maps+"?dryRun=All", js, `{"metadata":{"name":"b"}}`,
		`CREATE /v1/configmaps/ as v1.ConfigMap default/b dry object=v1.ConfigMap/b old=- options={"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"]}`)
	send("PUT", maps+"/a", js, `{"metadata":{"name":"a"},"data":{"a":"b"}}`,
		`UPDATE /v1/configmaps/ as v1.ConfigMap default/a object=v1.ConfigMap/a old=v1.ConfigMap/a options={"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}`)
	send("PATCH", maps+"/a", merge, `{"data":{"c":"d"}}`,
		`UPDATE /v1/configmaps/ as v1.ConfigMap default/a object=v1.ConfigMap/a old=v1.ConfigMap/a options={"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}`)
	send("PATCH", maps+"/applied?fieldManager=f", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}`,
		`CREATE /v1/configmaps/ as v1.ConfigMap default/applied object=v1.ConfigMap/applied old=- options={"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"f"}`)
	send("DELETE", maps+"/a", js, `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`,
		`DELETE /v1/configmaps/ as v1.ConfigMap default/a object=- old=v1.ConfigMap/a options={"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","propagationPolicy":"Background"}`)
	send("POST", "/api/v1/namespaces", js, `{"metadata":{"name":"n"}}`, `CREATE /v1/namespaces/ as v1.Namespace n/n object=v1.Namespace/n old=- options={"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)
	send("PATCH", "/api/v1/namespaces/n/status", merge, `{"metadata":{"labels":{"a":"b"}}}`,
		`UPDATE /v1/namespaces/status as v1.Namespace n/n object=v1.Namespace/n old=v1.Namespace/n options={"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}`)
	create := `{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`
	send("POST", pods, js, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, `CREATE /v1/pods/ as v1.Pod default/p object=v1.Pod/p old=- options=`+create)
	send("POST", pods+"/p/binding", js, `{"metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`, `CREATE /v1/pods/binding as v1.Binding default/p object=v1.Binding/p old=- options=`+create)
	send("POST", pods+"/p/eviction", js, `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}`, `CREATE /v1/pods/eviction as v1.Eviction default/p object=policy/v1.Eviction/p old=- options=`+create)
	// A webhook for autoscaling/v2 is asked about requests in autoscaling/v1, in its own version.
	send("POST", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", js, `{"metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}}}`,
		`CREATE autoscaling/v1/horizontalpodautoscalers/ as v2.HorizontalPodAutoscaler default/h object=autoscaling/v2.HorizontalPodAutoscaler/h old=- options=`+create)
	send("POST", "/apis/apps/v1/namespaces/default/deployments", js,
		`{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	send("PATCH", "/apis/apps/v1/namespaces/default/deployments/d/scale", merge, `{"spec":{"replicas":2}}`,
		`UPDATE apps/v1/deployments/scale as v1.Scale default/d object=autoscaling/v1.Scale/d old=autoscaling/v1.Scale/d options={"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1"}`)
	_, err := c.api.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sa"}}, metav1.CreateOptions{})
	c.must(err)
	log.take()
	_, err = c.api.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "sa", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	c.must(err)
	if got, want := log.take(), `CREATE /v1/serviceaccounts/token as v1.TokenRequest default/sa object=authentication.k8s.io/v1.TokenRequest/sa old=- options=`+create; len(got) != 1 || got[0] != want {
		t.Errorf("a token request:\n%s\nwant\n%s", got, want)
	}
}

// TestMutateThroughOtherVersion: a mutating webhook for autoscaling/v1 changes what is written in autoscaling/v2, and an eviction, a scale and a binding can
// be changed too.
func TestMutateThroughOtherVersion(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/max", patch(`[{"op":"test","path":"/apiVersion","value":"autoscaling/v1"},{"op":"replace","path":"/spec/maxReplicas","value":7}]`))
	c.hooks.review("/replicas", patch(`[{"op":"test","path":"/kind","value":"Scale"},{"op":"replace","path":"/spec/replicas","value":5}]`))
	c.mutating("m", mutatingHook{Name: "max.k8s.io", ClientConfig: c.byURL("/max"), Rules: rules{rule("autoscaling", "v1", "horizontalpodautoscalers")}},
		mutatingHook{Name: "exact.k8s.io", ClientConfig: c.byURL("/missing"), Rules: rules{rule("autoscaling", "v1", "horizontalpodautoscalers")}, MatchPolicy: ptr.To(admissionregistrationv1.Exact)},
		mutatingHook{Name: "scale.k8s.io", ClientConfig: c.byURL("/replicas"), Rules: rules{rule("", "v1", "replicationcontrollers/scale")}})
	api := c.api.CoreV1().RESTClient()
	body, err := api.Post().RequestURI("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers").SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").
		Body([]byte(`{"metadata":{"name":"h"},"spec":{"maxReplicas":3,"metrics":[{"type":"Resource","resource":{"name":"memory","target":{"type":"AverageValue","averageValue":"1Gi"}}}],"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}}}`)).Do(t.Context()).Raw()
	c.must(err)
	if !strings.Contains(string(body), `"maxReplicas":7`) || !strings.Contains(string(body), `"averageValue":"1Gi"`) {
		t.Errorf("stored %s", body)
	}
	rc := `{"metadata":{"name":"r"},"spec":{"replicas":1,"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	c.must(api.Post().RequestURI("/api/v1/namespaces/default/replicationcontrollers").SetHeader("Content-Type", "application/json").Body([]byte(rc)).Do(t.Context()).Error())
	_, err = c.api.CoreV1().ReplicationControllers("default").Patch(t.Context(), "r", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{}, "scale")
	c.must(err)
	if r, err := c.api.CoreV1().ReplicationControllers("default").Get(t.Context(), "r", metav1.GetOptions{}); err != nil || *r.Spec.Replicas != 5 {
		t.Errorf("%v: the replicas are %d", err, *r.Spec.Replicas)
	}
}

// TestDeletion: webhooks can refuse deletions, also those of a collection, and a patch of a deletion is an error.
func TestDeletion(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/keep", deny("keep"))
	c.hooks.review("/patch", patch(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`))
	c.validating("v", validatingHook{Name: "keep.k8s.io", ClientConfig: c.byURL("/keep"), Rules: rules{rule("", "v1", "configmaps", "DELETE")}, ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"keep": "yes"}}})
	c.mutating("m", mutatingHook{Name: "patch.k8s.io", ClientConfig: c.byURL("/patch"), Rules: rules{rule("", "v1", "secrets", "DELETE")}})
	maps := c.api.CoreV1().ConfigMaps("default")
	for name, keep := range map[string]string{"a": "yes", "b": "no"} {
		m := configMap(name, nil)
		m.Labels = map[string]string{"keep": keep}
		_, err := maps.Create(t.Context(), m, metav1.CreateOptions{})
		c.must(err)
	}
	c.expect(maps.Delete(t.Context(), "a", metav1.DeleteOptions{}), `admission webhook "keep.k8s.io" denied the request: keep`)
	c.expect(maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "keep=yes"}), `admission webhook "keep.k8s.io" denied the request: keep`)
	c.expect(maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "keep=no"}), "")
	_, err := c.api.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}, metav1.CreateOptions{})
	c.must(err)
	c.expect(c.api.CoreV1().Secrets("default").Delete(t.Context(), "s", metav1.DeleteOptions{}),
		`Internal error occurred: admission webhook "patch.k8s.io" attempted to modify the object, which is not supported for this operation`)
}

// TestEvictionIsRefused: a webhook for pods/eviction guards pods against it.
func TestEvictionIsRefused(t *testing.T) {
	c := newCluster(t)
	c.hooks.review("/no", deny("stays"))
	c.validating("v", validatingHook{Name: "evict.k8s.io", ClientConfig: c.byURL("/no"), Rules: rules{rule("", "v1", "pods/eviction", "CREATE")}})
	_, err := c.api.CoreV1().Pods("default").Create(t.Context(), pod("p", nil), metav1.CreateOptions{})
	c.must(err)
	c.expect(c.api.CoreV1().Pods("default").EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p"}}), `admission webhook "evict.k8s.io" denied the request: stays`)
}
