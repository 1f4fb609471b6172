package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"skiff/internal/store"
)

func (s *server) revision() int64 {
	s.t.Helper()
	revision, err := s.store.Revision(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return revision
}

// A generated name that is taken is replaced by another, up to eight times.
func TestGeneratedNamesThatAreTaken(t *testing.T) {
	s := start(t)
	generate := object{"metadata": object{"generateName": "g-"}}
	const seed = 1
	rand.Seed(seed)
	defer rand.Seed(time.Now().UnixNano())
	var names []string
	for range 8 {
		names = append(names, into[corev1.ConfigMap](s.send("POST", inNamespace("configmaps"), generate).ok()).Name)
	}
	rand.Seed(seed) // the same names come again, and then new ones
	status := s.send("POST", inNamespace("configmaps"), generate).refused(http.StatusConflict, metav1.StatusReasonAlreadyExists)
	if status.Details.Name != names[7] || status.Details.RetryAfterSeconds != 1 || !strings.Contains(status.Message, "the server was not able to generate a unique name") {
		t.Errorf("%+v", status)
	}
	s.send("DELETE", inNamespace("configmaps", names[4]), nil).ok()
	rand.Seed(seed)
	if got := into[corev1.ConfigMap](s.send("POST", inNamespace("configmaps"), generate).ok()); got.Name != names[4] {
		t.Errorf("called %s, want %s", got.Name, names[4])
	}
}

// An object that cannot be read is in nobody's way, and can be removed by who says that it is known what that means; one that can be read cannot, like
// that.
func TestUnreadable(t *testing.T) {
	s := start(t)
	s.send("POST", inNamespace("configmaps"), configMap("a", "k", "v")).ok()
	good, _, err := s.store.Get(t.Context(), "/registry/configmaps/default/a")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string][]byte{"nonsense": []byte("nonsense"), "torn": good.Value[:len(good.Value)-60]} {
		if _, err := s.store.Put(t.Context(), "/registry/configmaps/default/"+name, value, store.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		path := inNamespace("configmaps", name)
		if got := s.send("GET", path, nil); got.Code < 400 {
			t.Errorf("GET %s: %d %s", name, got.Code, got.Body)
		}
		s.send("DELETE", path, nil).refused(http.StatusInternalServerError, metav1.StatusReasonInternalError)
		const anyway = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
		s.send("DELETE", path+anyway+"&dryRun=All", nil).ok()
		s.send("DELETE", path+anyway, nil).ok()
		s.send("DELETE", path+anyway, nil).refused(http.StatusNotFound, metav1.StatusReasonNotFound)
	}
	if got := into[corev1.ConfigMapList](s.send("GET", inNamespace("configmaps"), nil).ok()); len(got.Items) != 1 {
		t.Errorf("%d are left", len(got.Items))
	}
}

// An update that changes nothing writes nothing, however much later it comes.
func TestUpdateOfNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		path := inNamespace("configmaps", "a")
		s.send("POST", inNamespace("configmaps"), configMap("a", "k", "v")).ok()
		got := s.send("GET", path, nil).ok()
		before := s.revision()
		time.Sleep(time.Hour)
		for _, again := range []answer{
			s.send("PUT", path, got.Body), s.send("PUT", path, configMap("a", "k", "v")),
			s.send("PATCH", path, `{"data":{"k":"v"}}`, "Content-Type", "application/merge-patch+json"),
			s.send("PATCH", path, `[]`, "Content-Type", "application/json-patch+json"),
			s.send("PATCH", path, `{}`, "Content-Type", "application/strategic-merge-patch+json"),
		} {
			if string(again.ok().Body) != string(got.Body) {
				t.Errorf("answered %s, was %s", again.Body, got.Body)
			}
		}
		apply := func() answer {
			return s.send("PATCH", path+"?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`, "Content-Type", "application/apply-patch+yaml").ok()
		}
		if now := s.revision(); now != before {
			t.Errorf("%d writes", now-before)
		}
		first := apply() // takes a share in the field
		time.Sleep(time.Hour)
		if second := apply(); string(second.Body) != string(first.Body) || s.revision() != before+1 {
			t.Errorf("%d writes: %s", s.revision()-before, second.Body)
		}
	})
}

// Patches without a version never conflict; updates with one do, and can be tried again.
func TestConcurrentWriters(t *testing.T) {
	s := start(t)
	s.send("POST", inNamespace("configmaps"), configMap("a", "n", "0")).ok()
	maps := s.client(protobuf).CoreV1().ConfigMaps("default")
	const writers, each = 6, 15
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(fmt.Sprintf(`{"data":{"w%d":"%d"}}`, w, i)), metav1.PatchOptions{}); err != nil {
					t.Errorf("a patch: %v", err)
				}
				err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
					cm, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
					if err != nil {
						return err
					}
					var n int
					if _, err := fmt.Sscan(cm.Data["n"], &n); err != nil {
						return err
					}
					cm.Data["n"] = fmt.Sprint(n + 1)
					_, err = maps.Update(t.Context(), cm, metav1.UpdateOptions{})
					return err
				})
				for err != nil { // some need longer than the default
					err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
						cm, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
						if err != nil {
							return err
						}
						var n int
						if _, err := fmt.Sscan(cm.Data["n"], &n); err != nil {
							return err
						}
						cm.Data["n"] = fmt.Sprint(n + 1)
						_, err = maps.Update(t.Context(), cm, metav1.UpdateOptions{})
						return err
					})
				}
			}
		})
	}
	wg.Wait()
	cm, err := maps.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || cm.Data["n"] != fmt.Sprint(writers*each) {
		t.Errorf("counted %s of %d, %v", cm.Data["n"], writers*each, err)
	}
	for w := range writers {
		if cm.Data[fmt.Sprintf("w%d", w)] != fmt.Sprint(each-1) {
			t.Errorf("writer %d: %s", w, cm.Data[fmt.Sprintf("w%d", w)])
		}
	}
}

// A pod's deadline comes nearer with every deletion that asks for less, and never lies in the past.
func TestDeletionDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		pod := object{"metadata": object{"name": "p"}, "spec": object{"nodeName": "n", "terminationGracePeriodSeconds": 60, "containers": []object{{"name": "c", "image": "i"}}}}
		s.send("POST", inNamespace("pods"), pod).ok()
		began := time.Now()
		remove := func(query string) *corev1.Pod {
			t.Helper()
			return into[corev1.Pod](s.send("DELETE", inNamespace("pods", "p")+query, nil).ok())
		}
		check := func(p *corev1.Pod, deadline time.Duration, grace int64) {
			t.Helper()
			if got := p.DeletionTimestamp.Sub(began); got.Round(time.Second) != deadline || *p.DeletionGracePeriodSeconds != grace {
				t.Errorf("ends after %v with %d s, want %v with %d", got, *p.DeletionGracePeriodSeconds, deadline, grace)
			}
		}
		check(remove(""), 60*time.Second, 60)
		time.Sleep(10 * time.Second)
		check(remove(""), 60*time.Second, 60)
		check(remove("?gracePeriodSeconds=600"), 60*time.Second, 60)
		check(remove("?gracePeriodSeconds=30"), 30*time.Second, 30)
		time.Sleep(15 * time.Second)
		check(remove("?gracePeriodSeconds=5"), 25*time.Second, 1) // five seconds after the first deletion are over
		if got := remove("?gracePeriodSeconds=0"); *got.DeletionGracePeriodSeconds != 0 {
			t.Errorf("%+v", got.ObjectMeta)
		}
		s.send("GET", inNamespace("pods", "p"), nil).refused(http.StatusNotFound, metav1.StatusReasonNotFound)
	})
}

// A namespace that is ending takes nothing new and goes when its finalizers do.
func TestNamespaceEnds(t *testing.T) {
	s := start(t)
	s.send("POST", "/api/v1/namespaces", object{"metadata": object{"name": "ending"}}).ok()
	s.send("POST", "/api/v1/namespaces/ending/configmaps", configMap("a")).ok()
	ns := into[corev1.Namespace](s.send("DELETE", "/api/v1/namespaces/ending", nil).ok())
	if ns.Status.Phase != corev1.NamespaceTerminating || ns.DeletionTimestamp == nil || len(ns.Spec.Finalizers) != 1 {
		t.Errorf("%+v", ns)
	}
	status := s.send("POST", "/api/v1/namespaces/ending/configmaps", configMap("b")).refused(http.StatusForbidden, metav1.StatusReasonForbidden)
	if len(status.Details.Causes) != 1 || status.Details.Causes[0].Type != corev1.NamespaceTerminatingCause {
		t.Errorf("%+v", status)
	}
	s.send("PUT", "/api/v1/namespaces/ending/configmaps/a", configMap("a", "still", "possible")).ok()
	s.send("DELETE", "/api/v1/namespaces/ending/configmaps/a", nil).ok()
	ns.Spec.Finalizers = nil
	s.send("PUT", "/api/v1/namespaces/ending/finalize", ns).ok()
	s.send("GET", "/api/v1/namespaces/ending", nil).refused(http.StatusNotFound, metav1.StatusReasonNotFound)
	s.send("POST", "/api/v1/namespaces/ending/configmaps", configMap("b")).refused(http.StatusNotFound, metav1.StatusReasonNotFound)
}

// What was written is read back the same in every encoding.
func TestEncodingsAgree(t *testing.T) {
	s := start(t)
	replicas := int32(2)
	made := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"ключ": "no"}}}
	made.Labels = map[string]string{"app": "web"}
	made.Annotations = map[string]string{"text": "çå<&>\u2028\"\\"}
	made.Spec = appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}
	byProtobuf, err := s.client(protobuf).AppsV1().Deployments("default").Create(t.Context(), made, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	byJSON, err := s.client("application/json").AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := "/apis/apps/v1/namespaces/default/deployments/web"
	asYAML := s.send("GET", path, nil, "Accept", "application/yaml").ok().Body
	byYAML := &appsv1.Deployment{}
	if err := yaml.UnmarshalStrict(asYAML, byYAML); err != nil {
		t.Fatal(err)
	}
	show := func(d *appsv1.Deployment) string {
		d.TypeMeta = metav1.TypeMeta{}
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if a, b, c := show(byProtobuf), show(byJSON), show(byYAML); a != b || b != c {
		t.Errorf("protobuf %s\njson %s\nyaml %s", a, b, c)
	}
	if byJSON.Annotations["text"] != made.Annotations["text"] {
		t.Errorf("%q", byJSON.Annotations["text"])
	}
	if got := s.send("PUT", path, asYAML, "Content-Type", "application/yaml").ok(); got.version() != mustParse(t, byJSON.ResourceVersion) {
		t.Error("what was read is not what is stored")
	}
}

func mustParse(t *testing.T, version string) int64 {
	t.Helper()
	var n int64
	if _, err := fmt.Sscan(version, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Warnings are told once each, and never more than headers bear.
func TestWarningsAreBounded(t *testing.T) {
	s := start(t)
	cm := configMap("a")
	for i := range 1000 {
		cm[fmt.Sprintf("unknown%03d", i)] = true
	}
	warnings := s.send("POST", inNamespace("configmaps"), cm).ok().Header["Warning"]
	size := 0
	for _, w := range warnings {
		size += len(w)
	}
	if len(warnings) < 50 || size > 8<<10 || warnings[0] != `299 - "unknown field \"unknown000\""` {
		t.Errorf("%d warnings, %d bytes, the first is %s", len(warnings), size, warnings[0])
	}
}

// Every resource that can be listed can be so in every form.
func TestEveryResourceInEveryForm(t *testing.T) {
	s := start(t)
	_, lists, err := s.client("").Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, list := range lists {
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !strings.Contains(r.Verbs.String(), "list") {
				continue
			}
			checked++
			path := "/apis/" + list.GroupVersion + "/" + r.Name
			if list.GroupVersion == "v1" {
				path = "/api/v1/" + r.Name
			}
			for _, c := range []struct{ accept, kind string }{
				{"application/json", r.Kind + "List"}, {"application/json;as=Table;g=meta.k8s.io;v=v1", "Table"},
				{"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "PartialObjectMetadataList"},
			} {
				got := s.send("GET", path, nil, "Accept", c.accept).ok()
				if kind := into[metav1.TypeMeta](got).Kind; kind != c.kind {
					t.Errorf("%s as %s: %s", path, c.accept, kind)
				}
			}
			for _, accept := range []string{protobuf, protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"} {
				if got := s.send("GET", path, nil, "Accept", accept).ok(); string(got.Body[:4]) != "k8s\x00" {
					t.Errorf("%s as %s: %q", path, accept, got.Body)
				}
			}
			if got := s.send("GET", path, nil, "Accept", "application/yaml").ok(); !strings.Contains(string(got.Body), "kind: "+r.Kind+"List") {
				t.Errorf("%s as YAML: %s", path, got.Body)
			}
			s.send("GET", path+"?fieldSelector=nonsense%3D1", nil).refused(http.StatusBadRequest, metav1.StatusReasonBadRequest)
			s.send("GET", path+"?labelSelector=a%20b", nil).refused(http.StatusBadRequest, metav1.StatusReasonBadRequest)
		}
	}
	if checked < 60 {
		t.Errorf("%d resources", checked)
	}
}

// A patch costs about what its size says.
func TestCostlyPatches(t *testing.T) {
	s := start(t)
	s.create("a", nil)
	path := "/apis/apps/v1/namespaces/default/controllerrevisions"
	deep := strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000)
	s.send("POST", path, `{"metadata":{"name":"deep"},"revision":1,"data":`+deep+`}`).ok()
	var copies []object
	for i := range 100 { // each doubles the object
		copies = append(copies, object{"op": "copy", "from": "/data", "path": fmt.Sprintf("/data/c%d", i)})
	}
	began := time.Now()
	for _, c := range []struct {
		path, contentType string
		patch             any
	}{
		{path + "/deep", "application/merge-patch+json", `{"data":` + deep + `}`},
		{path + "/deep", "application/json-patch+json", `[{"op":"add","path":"/data` + strings.Repeat("/a", 8000) + `","value":1}]`},
		{path + "/deep", "application/json-patch+json", `[{"op":"move","from":"/data` + strings.Repeat("/a", 8000) + `","path":"/data/b"}]`},
		{path + "/deep", "application/json-patch+json", `[{"op":"add","path":"/data/b","value":` + deep + `}]`},
		{path + "/deep", "application/strategic-merge-patch+json", `{"data":` + deep + `}`},
		{inNamespace("configmaps", "a"), "application/json-patch+json", append([]object{{"op": "add", "path": "/data", "value": object{"x": strings.Repeat("x", 1000)}}}, copies...)},
	} {
		if got := s.send("PATCH", c.path, c.patch, "Content-Type", c.contentType); got.Code != 400 && got.Code != 422 {
			t.Errorf("%s: %d %.200s", c.contentType, got.Code, got.Body)
		}
	}
	if took := time.Since(began); took > 5*time.Second { // on a busy machine; it takes milliseconds
		t.Errorf("took %v", took)
	}
	s.send("PATCH", inNamespace("configmaps", "a"), `{"data":{"brackets":"`+strings.Repeat(`[{\"`, 2000)+`"}}`, "Content-Type", "application/merge-patch+json").ok()
}
