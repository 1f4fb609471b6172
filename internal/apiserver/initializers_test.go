package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/codec"
	"skiff/internal/catalog/initializers"
	"skiff/internal/client"
	"skiff/internal/store"
	"skiff/internal/store/memory"
)

// guideConfiguration is what the guide prints.
const guideConfiguration = `apiVersion: admissionregistration.k8s.io/v1alpha1
kind: InitializerConfiguration
metadata:
  name: custom-pod-initializer
initializers:
  - name: podimage.example.com
    rules:
      - apiGroups:
          - ""
        apiVersions:
          - v1
        resources:
          - pods
`

const (
	configurations = "/apis/admissionregistration.k8s.io/v1alpha1/initializerconfigurations"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	jsonPatch      = "application/json-patch+json"
	applyPatch     = "application/apply-patch+yaml"
	uninitialized  = "?includeUninitialized=true"
)

// withInitializers enables the admission plugins that the tests of initializers are about.
func withInitializers(more ...string) func(*apiserver.Options) {
	return func(o *apiserver.Options) {
		o.DisableAdmission = slices.DeleteFunc(slices.Clone(o.DisableAdmission), func(name string) bool {
			return name == admission.InitializersPlugin || slices.Contains(more, name)
		})
	}
}

// initializing starts a server in a bubble, with initializers for resources: configuration name, initializer, group and plural of each.
func initializing(t *testing.T, of ...[4]string) *server {
	t.Helper()
	s := settled(t, withInitializers())
	for _, c := range of {
		s.configure(c[0], c[1], c[2], c[3])
	}
	return s
}

func (s *server) configure(name, initializer, group, plural string) {
	s.t.Helper()
	s.send("POST", configurations, object{"metadata": object{"name": name}, "initializers": []object{{"name": initializer,
		"rules": []object{{"apiGroups": []string{group}, "apiVersions": []string{"*"}, "resources": []string{plural}}}}}}).ok()
	synctest.Wait()
}

// begin sends a creation that waits, and returns what gets its answer.
func (s *server) begin(path string, body any) <-chan answer {
	answers := make(chan answer, 1)
	go func() { answers <- s.send("POST", path, body) }()
	synctest.Wait()
	return answers
}

// arrived returns the answer to a creation, which must have come.
func arrived(t *testing.T, answers <-chan answer) answer {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-answers:
		return a
	default:
		t.Fatal("the creation still waits")
		return answer{}
	}
}

func waits(t *testing.T, answers <-chan answer) {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-answers:
		t.Fatalf("the creation was answered with %d: %s", a.Code, a.Body)
	default:
	}
}

// pending returns the names of the pending initializers in an answer.
func (a answer) pending() string {
	a.t.Helper()
	type meta struct {
		Metadata struct{ Initializers *initializers.Initializers }
	}
	return strings.Join(into[meta](a.ok()).Metadata.Initializers.Names(), " ")
}

func (s *server) initialize(path string, left ...string) answer {
	s.t.Helper()
	pending := []object{}
	for _, name := range left {
		pending = append(pending, object{"name": name})
	}
	return s.send("PATCH", path, object{"metadata": object{"initializers": object{"pending": pending}}}, "Content-Type", mergePatch)
}

func container(name string) object { return object{"name": name, "image": "i"} }

func newPod(name string) object {
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name}, "spec": object{"containers": []object{container("c")}}}
}

// TestInitializers: what the guide prints, as it tells it: a new pod gets the initializer, nobody sees it, and when the initializer is done it is there.
func TestInitializers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t, withInitializers())
		s.send("POST", configurations, guideConfiguration, "Content-Type", "application/yaml").ok()
		synctest.Wait()
		version := into[metav1.List](s.send("GET", inNamespace("pods"), nil)).ResourceVersion
		events, all := s.events(t, "resourceVersion="+version), s.events(t, "includeUninitialized=1&resourceVersion="+version)
		created := s.begin(inNamespace("pods"), newPod("web"))
		waits(t, created)

		s.send("GET", inNamespace("pods", "web"), nil).refused(404, metav1.StatusReasonNotFound)
		s.send("GET", inNamespace("pods", "web", "status"), nil).refused(404, metav1.StatusReasonNotFound)
		for _, query := range []string{"", "?resourceVersion=0", "?limit=1", "?fieldSelector=metadata.name%3Dweb"} {
			if got := into[corev1.PodList](s.send("GET", inNamespace("pods")+query, nil)).Items; len(got) != 0 {
				t.Errorf("list %s has %d pods", query, len(got))
			}
			if got := into[corev1.PodList](s.send("GET", inNamespace("pods")+uninitialized+strings.ReplaceAll(query, "?", "&"), nil)).Items; len(got) != 1 {
				t.Errorf("list %s of all has %d pods", query, len(got))
			}
		}
		waiting := s.send("GET", inNamespace("pods", "web")+uninitialized, nil)
		if got := waiting.pending(); got != "podimage.example.com" {
			t.Errorf("pending: %s", got)
		}
		revision := into[corev1.Pod](waiting).ResourceVersion
		exact := "?resourceVersionMatch=Exact&resourceVersion=" + revision
		s.send("POST", inNamespace("configmaps"), configMap("other")).ok() // so that the cache is newer
		if got := into[corev1.PodList](s.send("GET", inNamespace("pods")+exact, nil)).Items; len(got) != 0 {
			t.Errorf("a list of the history has %d pods", len(got))
		}
		s.send("POST", inNamespace("pods"), newPod("web")).refused(409, metav1.StatusReasonAlreadyExists)
		events.want(t)
		all.want(t, "ADDED web podimage.example.com")

		// The initializer injects a sidecar, which no update of a pod that is initialized may.
		sidecar := object{"spec": object{"containers": []object{container("c"), container("proxy")}}}
		s.send("PATCH", inNamespace("pods", "web"), sidecar, "Content-Type", strategicPatch).ok()
		waits(t, created)
		if got := s.initialize(inNamespace("pods", "web")).pending(); got != "" {
			t.Errorf("pending: %s", got)
		}
		a := arrived(t, created)
		if pod := into[corev1.Pod](a); a.Code != 201 || len(pod.Spec.Containers) != 2 || bytes.Contains(a.Body, []byte(`"initializers"`)) {
			t.Errorf("the creation answered %d: %s", a.Code, a.Body)
		}
		s.send("GET", inNamespace("pods", "web"), nil).ok()
		if got := into[corev1.PodList](s.send("GET", inNamespace("pods"), nil)).Items; len(got) != 1 {
			t.Errorf("the list has %d pods", len(got))
		}
		events.want(t, "ADDED web")
		all.want(t, "MODIFIED web podimage.example.com", "MODIFIED web")
		s.send("PATCH", inNamespace("pods", "web"), object{"spec": object{"containers": []object{container("other")}}}, "Content-Type", strategicPatch).
			refused(422, metav1.StatusReasonInvalid)
		s.initialize(inNamespace("pods", "web"), "another.example.com").refused(422, metav1.StatusReasonInvalid)
		// A watch of the history sees the same.
		s.events(t, "resourceVersion="+version).want(t, "ADDED web")
		s.events(t, "includeUninitialized=true&resourceVersion="+version).want(t, "ADDED web podimage.example.com", "MODIFIED web podimage.example.com", "MODIFIED web")

		s.send("DELETE", configurations+"/custom-pod-initializer", nil).ok()
		synctest.Wait()
		s.send("POST", inNamespace("pods"), newPod("plain")).ok()
	})
}

// podEvents are the events of a watch of pods.
type podEvents struct{ lines []string }

func (s *server) events(t *testing.T, query string) *podEvents {
	t.Helper()
	response, err := s.RoundTrip(httptestRequest(t, inNamespace("pods")+"?watch=1&"+query))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	e := &podEvents{}
	go func() {
		decoder := json.NewDecoder(response.Body)
		for {
			var event struct {
				Type   string
				Object struct {
					Metadata struct {
						Name         string
						Initializers *initializers.Initializers
					}
				}
			}
			if decoder.Decode(&event) != nil {
				return
			}
			e.lines = append(e.lines, strings.TrimSpace(fmt.Sprint(event.Type, " ", event.Object.Metadata.Name, " ", strings.Join(event.Object.Metadata.Initializers.Names(), ","))))
		}
	}()
	return e
}

func httptestRequest(t *testing.T, path string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://skiff"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// want compares the events since the last call.
func (e *podEvents) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(e.lines, want) {
		t.Errorf("got %q, want %q", e.lines, want)
	}
	e.lines = nil
}

// TestInitializersInOrder: initializers act in the order of their configurations' names, and nobody may remove another than the first.
func TestInitializersInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := initializing(t, [4]string{"z", "last.example.com", "", "configmaps"}, [4]string{"a", "first.example.com", "", "configmaps"},
			[4]string{"m", "other.example.com", "", "secrets"}, [4]string{"n", "every.example.com", "*", "*"})
		created := s.begin(inNamespace("configmaps"), configMap("a"))
		path := inNamespace("configmaps", "a")
		if got := s.send("GET", path+uninitialized, nil).pending(); got != "first.example.com every.example.com last.example.com" {
			t.Fatalf("pending: %s", got)
		}
		for _, left := range [][]string{{"first.example.com", "last.example.com"}, {"last.example.com"}, {}, {"every.example.com", "last.example.com", "more.example.com"},
			{"last.example.com", "every.example.com"}} {
			if got := s.initialize(path, left...).refused(422, metav1.StatusReasonInvalid).Message; !strings.Contains(got, "metadata.initializers.pending: Invalid value") ||
				!strings.Contains(got, "only the first of the pending initializers may be removed, which is first.example.com") {
				t.Errorf("left %v: %s", left, got)
			}
		}
		s.initialize(path, "every.example.com", "last.example.com").ok()
		s.initialize(path, "last.example.com").ok()
		waits(t, created)
		s.initialize(path).ok()
		arrived(t, created).ok()
		s.send("GET", path, nil).ok()
	})
}

// TestInitializersUnknownToClients: whoever does not know the field can write the object, and not drop the field.
func TestInitializersUnknownToClients(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := initializing(t, [4]string{"a", "a.example.com", "", "configmaps"})
		s.send("POST", inNamespace("configmaps")+uninitialized, configMap("a")).ok()
		path := inNamespace("configmaps", "a")
		unchanged := func(what string) {
			t.Helper()
			if got := s.send("GET", path+uninitialized, nil).pending(); got != "a.example.com" {
				t.Errorf("%s: pending: %q", what, got)
			}
		}
		for _, media := range []string{"", protobuf} {
			c := s.client(media).CoreV1().ConfigMaps("default")
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"by": media}}}
			if _, err := c.Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			unchanged("PUT as " + media)
		}
		s.send("PATCH", path, object{"data": object{"x": "y"}}, "Content-Type", mergePatch).ok()
		unchanged("merge patch")
		s.send("PATCH", path, object{"metadata": object{"labels": object{"x": "y"}}}, "Content-Type", strategicPatch).ok()
		unchanged("strategic merge patch")
		s.send("PATCH", path, `[{"op":"add","path":"/data/z","value":"z"}]`, "Content-Type", jsonPatch).ok()
		unchanged("JSON patch")
		s.send("PATCH", path+"?fieldManager=m&force=true", configMap("a", "x", "z"), "Content-Type", applyPatch).ok()
		unchanged("apply")
		s.send("PATCH", path+"?fieldManager=m&force=true", configMap("a", "x", "z"), "Content-Type", applyPatch).ok() // which changes nothing
		unchanged("no change")
	})
}

// TestInitializersPatched: every kind of write can remove an initializer.
func TestInitializersPatched(t *testing.T) {
	const two = `{"metadata":{"name":"x","namespace":"default","initializers":{"pending":[{"name":"a.example.com"},{"name":"b.example.com"}]}}}`
	path := inNamespace("configmaps", "x")
	for _, c := range []struct{ name, method, query, body, media, want string }{
		{"JSON patch", "PATCH", "", `[{"op":"test","path":"/metadata/initializers/pending/0/name","value":"a.example.com"},{"op":"remove","path":"/metadata/initializers/pending/0"}]`, jsonPatch, "b.example.com"},
		{"merge patch", "PATCH", "", `{"metadata":{"initializers":{"pending":[{"name":"b.example.com"}]}}}`, mergePatch, "b.example.com"},
		{"strategic merge patch", "PATCH", "?fieldValidation=Strict", `{"metadata":{"initializers":{"pending":[{"$patch":"delete","name":"a.example.com"}]}}}`, strategicPatch, "b.example.com"},
		{"apply", "PATCH", "?fieldManager=m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","initializers":{"pending":[{"name":"b.example.com"}]}}}`, applyPatch, "b.example.com"},
		{"PUT", "PUT", "?fieldValidation=Strict", `{"metadata":{"name":"x","initializers":{"pending":[{"name":"b.example.com"}]}}}`, codec.JSONType, "b.example.com"},
		{"PUT in YAML", "PUT", "", "metadata:\n  name: x\n  initializers: {pending: [{name: b.example.com}]}\n", "application/yaml", "b.example.com"},
		{"nothing", "PUT", "", two, codec.JSONType, "a.example.com b.example.com"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := initializing(t)
				s.send("POST", inNamespace("configmaps")+uninitialized, two).ok()
				a := s.send(c.method, path+c.query, c.body, "Content-Type", c.media)
				if got := a.pending(); got != c.want {
					t.Errorf("pending in the answer: %q", got)
				}
				if warned := a.Header["Warning"]; len(warned) > 0 {
					t.Errorf("warned: %q", warned)
				}
				if got := s.send("GET", path+uninitialized, nil).pending(); got != c.want {
					t.Errorf("pending: %q", got)
				}
			})
		})
	}
	for name, body := range map[string]string{"null": `{"metadata":{"initializers":null}}`, "empty": `{"metadata":{"initializers":{"pending":[]}}}`,
		"removed by name": `{"metadata":{"initializers":{"pending":[{"$patch":"delete","name":"a.example.com"}]}}}`, "removed": `{"metadata":{"initializers":{"$patch":"delete"}}}`} {
		t.Run("the last "+name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := initializing(t, [4]string{"a", "a.example.com", "", "configmaps"})
				created := s.begin(inNamespace("configmaps"), configMap("x"))
				media := strategicPatch // which merges an empty list into that there is
				if name == "empty" {
					media = mergePatch
				}
				s.send("PATCH", path, body, "Content-Type", media).ok()
				arrived(t, created).ok()
			})
		})
	}
	t.Run("protobuf", func(t *testing.T) { // of a client of Kubernetes before v1.16
		bubble(t, func(t *testing.T) {
			s := initializing(t)
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
			message, err := cm.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			head := codec.EnvelopeHead(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			body := codec.AppendEnvelope(nil, head, append(message, initializers.Of("a.example.com").Suffix()...))
			s.send("POST", inNamespace("configmaps")+uninitialized, body, "Content-Type", protobuf).ok()
			a := s.send("GET", path+uninitialized, nil, "Accept", protobuf).ok()
			answered, _, err := codec.OpenEnvelope(a.Body)
			if err != nil {
				t.Fatal(err)
			}
			if in, err := initializers.FromMessage(answered); err != nil || strings.Join(in.Names(), " ") != "a.example.com" {
				t.Errorf("answered %v, %v", in, err)
			}
		})
	})
}

// TestInitializerRefuses: a refusal removes the object, and the creation fails with it. It is the guide's third use: a Secret under 20 characters.
func TestInitializerRefuses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := initializing(t, [4]string{"a", "length.example.com", "", "secrets"})
		created := s.begin(inNamespace("secrets"), object{"metadata": object{"name": "short", "finalizers": []string{"example.com/keep"}}, "stringData": object{"password": "12345"}})
		path := inNamespace("secrets", "short")
		refusal := object{"metadata": object{"initializers": object{"result": object{"status": "Failure", "code": 422, "reason": "Invalid", "message": "password: must have at least 20 characters"}}}}
		s.send("PATCH", path, object{"metadata": object{"initializers": object{"result": object{"status": "Success"}}}}, "Content-Type", mergePatch).refused(422, metav1.StatusReasonInvalid)
		waits(t, created)
		s.send("PATCH", path, refusal, "Content-Type", mergePatch).ok()
		if got := arrived(t, created).refused(422, metav1.StatusReasonInvalid).Message; got != "password: must have at least 20 characters" {
			t.Errorf("refused with %s", got)
		}
		s.send("GET", path+uninitialized, nil).refused(404, metav1.StatusReasonNotFound)
		if list, err := s.store.List(t.Context(), "/registry/secrets/default/", store.ListOptions{}); err != nil || len(list.KVs) != 0 {
			t.Errorf("the store has %d secrets, %v", len(list.KVs), err)
		}
	})
}

// TestInitializationTakesTooLong: the creation fails, and the object goes on waiting.
func TestInitializationTakesTooLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := initializing(t, [4]string{"a", "a.example.com", "", "configmaps"})
		began := time.Now()
		got := s.send("POST", inNamespace("configmaps"), configMap("a")).refused(504, metav1.StatusReasonTimeout)
		if got.Message != "Timeout: server has timed out waiting for the initialization of configmaps a" {
			t.Errorf("refused with %s", got.Message)
		}
		if waited := time.Since(began); waited != 30*time.Second {
			t.Errorf("waited %v", waited)
		}
		s.send("POST", inNamespace("configmaps")+"?timeout=2s", configMap("b")).refused(504, metav1.StatusReasonTimeout)
		if waited := time.Since(began); waited != 31800*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
		s.send("POST", inNamespace("configmaps")+"?dryRun=All", configMap("c")).ok()
		s.initialize(inNamespace("configmaps", "a")).ok()
		s.send("GET", inNamespace("configmaps", "a"), nil).ok()

		// Who deletes means these, too.
		created := s.begin(inNamespace("configmaps"), configMap("d"))
		s.send("DELETE", inNamespace("configmaps", "d"), nil).ok()
		if got := arrived(t, created).refused(500, metav1.StatusReasonInternalError).Message; !strings.Contains(got, "object deleted while waiting for creation") {
			t.Errorf("refused with %s", got)
		}
		s.send("DELETE", inNamespace("configmaps"), nil).ok()
		if got := into[corev1.ConfigMapList](s.send("GET", inNamespace("configmaps")+uninitialized, nil)).Items; len(got) != 0 {
			t.Errorf("%d are left", len(got))
		}
	})
}

// TestInitializersOfOwn: whoever may initialize may say what a new object waits for, or that it waits for nothing.
func TestInitializersOfOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := initializing(t, [4]string{"a", "a.example.com", "", "*"})
		bypass := configMap("none")
		bypass["metadata"].(object)["initializers"] = object{"pending": []object{}}
		s.send("POST", inNamespace("configmaps"), bypass).ok()
		s.send("GET", inNamespace("configmaps", "none"), nil).ok()
		own := configMap("own")
		own["metadata"].(object)["initializers"] = object{"pending": []object{{"name": "Bad name"}}}
		if got := s.send("POST", inNamespace("configmaps"), own).refused(422, metav1.StatusReasonInvalid).Message; !strings.Contains(got, "metadata.initializers.pending[0].name") {
			t.Errorf("refused with %s", got)
		}
		own["metadata"].(object)["initializers"] = object{"result": object{"status": "Failure"}}
		s.send("POST", inNamespace("configmaps"), own).refused(422, metav1.StatusReasonInvalid)
		mirror := newPod("mirror")
		mirror["metadata"].(object)["annotations"] = object{corev1.MirrorPodAnnotationKey: "x"}
		mirror["spec"].(object)["nodeName"] = "n"
		s.send("POST", inNamespace("pods"), mirror).ok()
		s.configure("everything", "all.example.com", "*", "*")
		s.configure("more", "more.example.com", "", "pods") // configurations do not wait
	})
}

// TestInitializersOff: without the plugin the field means nothing.
func TestInitializersOff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		s.configure("a", "a.example.com", "", "*")
		own := configMap("own")
		own["metadata"].(object)["initializers"] = object{"pending": []object{{"name": "a.example.com"}}}
		if got := s.send("POST", inNamespace("configmaps"), own).pending(); got != "" {
			t.Errorf("pending: %s", got)
		}
	})
}

// TestInitializersSurvive: another server on the same store, as after kill -9, hides what is not initialized, also if objects are stored as JSON.
func TestInitializersSurvive(t *testing.T) {
	for name, asJSON := range map[string]bool{"protobuf": false, "JSON": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				m := memory.New(memory.Options{})
				defer m.Close()
				shared := func(o *apiserver.Options) { o.Store, o.StorageJSON = unclosedStore{m}, asJSON }
				s := settled(t, withInitializers(), shared)
				for _, group := range []string{"", "apps", "events.k8s.io", "autoscaling"} {
					s.configure("a"+group, "a.example.com", group, "*")
				}
				deployment := object{"metadata": object{"name": "x"}, "spec": object{"selector": object{"matchLabels": object{"a": "b"}}, "replicas": 1,
					"template": object{"metadata": object{"labels": object{"a": "b"}}, "spec": object{"containers": []object{container("c")}}}}}
				set := object{"metadata": object{"name": "x"}, "spec": object{"serviceName": "s", "selector": object{"matchLabels": object{"a": "b"}}, "template": deployment["spec"].(object)["template"]}}
				event := object{"metadata": object{"name": "x"}, "involvedObject": object{"namespace": "default"}}
				scaler := object{"metadata": object{"name": "x"}, "spec": object{"maxReplicas": 2, "scaleTargetRef": object{"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}}}
				paths := map[string]any{"/api/v1/namespaces/default/pods": newPod("x"), "/apis/apps/v1/namespaces/default/deployments": deployment, "/apis/apps/v1/namespaces/default/statefulsets": set,
					"/api/v1/namespaces/default/events": event, "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers": scaler}
				for path, body := range paths {
					s.send("POST", path+uninitialized, body).ok()
				}
				s.api.Close()
				s = settled(t, withInitializers(), shared)
				paths["/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"] = nil
				paths["/apis/events.k8s.io/v1/namespaces/default/events"] = nil
				for path := range paths {
					s.send("GET", path+"/x", nil).refused(404, metav1.StatusReasonNotFound)
					if got := s.send("GET", path+"/x"+uninitialized, nil).pending(); got != "a.example.com" {
						t.Errorf("%s: pending: %q", path, got)
					}
					for accept, is := range map[string]string{"": "a.example.com", protobuf: "a.example.com", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json": "a.example.com",
						"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io": "a.example.com"} {
						if a := s.send("GET", path, nil, "Accept", accept).ok(); bytes.Contains(a.Body, []byte(is)) {
							t.Errorf("%s as %s: the list shows what is not initialized", path, accept)
						}
						if a := s.send("GET", path+uninitialized, nil, "Accept", accept).ok(); !bytes.Contains(a.Body, []byte(is)) {
							t.Errorf("%s as %s: the list of all has no initializers: %s", path, accept, a.Body)
						}
					}
				}
				for path := range paths {
					if !strings.HasPrefix(path, "/apis/events.k8s.io") && !strings.HasPrefix(path, "/apis/autoscaling/v2") {
						s.initialize(path + "/x").ok()
					}
				}
				for path := range paths {
					s.send("GET", path+"/x", nil).ok()
				}
				s.api.Close()
			})
		})
	}
}

// TestInitializersOfCustomObjects: custom objects wait, too, and their schema may change meanwhile.
func TestInitializersOfCustomObjects(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := initializing(t, [4]string{"a", "a.example.com", "example.com", "things"})
		definition := func(fields object) object {
			return object{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": "things.example.com"},
				"spec": object{"group": "example.com", "scope": "Namespaced", "names": object{"plural": "things", "kind": "Thing"},
					"versions": []object{{"name": "v1", "served": true, "storage": true, "schema": object{"openAPIV3Schema": object{"type": "object", "properties": fields}}}}}}
		}
		text := object{"type": "string"}
		s.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(object{"size": text})).ok()
		time.Sleep(time.Second)
		things := "/apis/example.com/v1/namespaces/default/things"
		created := s.begin(things+"?timeout=1m&fieldValidation=Strict", object{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": object{"name": "x"}, "size": "large"})
		s.send("GET", things+"/x", nil).refused(404, metav1.StatusReasonNotFound)
		s.send("PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com", object{"spec": definition(object{"size": text,
			"color": object{"type": "string", "default": "blue"}})["spec"]}, "Content-Type", mergePatch).ok()
		time.Sleep(time.Second)
		waiting := s.send("GET", things+"/x"+uninitialized, nil)
		if got := waiting.pending(); got != "a.example.com" || !bytes.Contains(waiting.Body, []byte(`"color":"blue"`)) {
			t.Errorf("pending: %q in %s", got, waiting.Body)
		}
		if got := s.send("PATCH", things+"/x", object{"size": "small"}, "Content-Type", mergePatch).pending(); got != "a.example.com" {
			t.Errorf("pending: %q", got)
		}
		s.initialize(things + "/x").ok()
		if a := arrived(t, created).ok(); !bytes.Contains(a.Body, []byte(`"size":"small"`)) {
			t.Errorf("answered %s", a.Body)
		}
	})
}

// TestInitializerIsLate: Events tell of an object that waits, also after a restart, and no longer than it does.
func TestInitializerIsLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := memory.New(memory.Options{})
		defer m.Close()
		shared := func(o *apiserver.Options) { o.Store = unclosedStore{m} }
		s := settled(t, withInitializers(), shared)
		s.configure("a", "a.example.com", "", "configmaps")
		s.configure("b", "b.example.com", "", "configmaps")
		s.send("POST", inNamespace("configmaps")+uninitialized, configMap("x")).ok()
		told := func() (lines []string) {
			for _, e := range into[corev1.EventList](s.send("GET", inNamespace("events"), nil)).Items {
				lines = append(lines, fmt.Sprintf("%s %s/%s: %s", e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message))
			}
			slices.Sort(lines)
			return lines
		}
		time.Sleep(29 * time.Second)
		if got := told(); len(got) > 0 {
			t.Errorf("too early: %q", got)
		}
		time.Sleep(10 * time.Second)
		want := "WaitingForInitializer ConfigMap/x: initializer a.example.com has not acted for 30s: nobody sees the object before it does, and then b.example.com"
		if got := told(); len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %s", got, want)
		}
		s.initialize(inNamespace("configmaps", "x"), "b.example.com").ok()
		time.Sleep(20 * time.Second)
		s.api.Close()
		s = settled(t, withInitializers(), shared)
		time.Sleep(40 * time.Second)
		want = "WaitingForInitializer ConfigMap/x: initializer b.example.com has not acted for 30s: nobody sees the object before it does"
		if got := told(); len(got) != 2 || got[1] != want {
			t.Errorf("got %q, want %s", got, want)
		}
		s.initialize(inNamespace("configmaps", "x")).ok()
		time.Sleep(31 * time.Minute)
		if got := told(); len(got) != 2 {
			t.Errorf("it tells of an object that is initialized: %q", got)
		}
		s.api.Close()
	})
}

// TestInitializersAndInformers: components in the process of the server see an object when it is initialized, and not before.
func TestInitializersAndInformers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := initializing(t, [4]string{"a", "a.example.com", "", "pods"})
		c, err := client.ForServer(s.api, client.Identity{User: "system:admin", Groups: []string{"system:masters"}, Component: "test"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		factory := c.Informers(client.InformerOptions{})
		var seen []string
		note := func(kind watch.EventType) func(any) {
			return func(obj any) { seen = append(seen, string(kind)+" "+obj.(*corev1.Pod).Name) }
		}
		pods := factory.Core().V1().Pods().Informer()
		if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: note(watch.Added), UpdateFunc: func(_, obj any) { note(watch.Modified)(obj) }, DeleteFunc: note(watch.Deleted)}); err != nil {
			t.Fatal(err)
		}
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		for _, name := range []string{"a", "b"} {
			s.send("POST", inNamespace("pods")+uninitialized, newPod(name)).ok()
		}
		synctest.Wait()
		if len(seen) > 0 {
			t.Errorf("the informer has seen %q", seen)
		}
		s.send("DELETE", inNamespace("pods", "b"), nil).ok()
		s.initialize(inNamespace("pods", "a")).ok()
		synctest.Wait()
		if !slices.Equal(seen, []string{"ADDED a"}) {
			t.Errorf("the informer has seen %q", seen)
		}
		cancel()
		factory.Shutdown()
	})
}

// TestInitializerConfigurations: the kind behaves as one of its own, in discovery, OpenAPI, patches and validation.
func TestInitializerConfigurations(t *testing.T) {
	s := start(t, withInitializers())
	list := into[metav1.APIResourceList](s.send("GET", "/apis/admissionregistration.k8s.io/v1alpha1", nil))
	if len(list.APIResources) != 1 || list.APIResources[0].Name != "initializerconfigurations" || list.APIResources[0].Namespaced || list.APIResources[0].Kind != "InitializerConfiguration" {
		t.Errorf("discovery has %+v", list.APIResources)
	}
	group := into[metav1.APIGroup](s.send("GET", "/apis/admissionregistration.k8s.io", nil))
	if group.PreferredVersion.Version != "v1" || len(group.Versions) != 2 {
		t.Errorf("the group is %+v", group)
	}
	for _, path := range []string{"/openapi/v3/apis/admissionregistration.k8s.io/v1alpha1", "/openapi/v2"} {
		if a := s.send("GET", path, nil).ok(); !bytes.Contains(a.Body, []byte("io.k8s.api.admissionregistration.v1alpha1.InitializerConfiguration")) {
			t.Errorf("%s does not describe the kind", path)
		}
	}
	s.send("PATCH", configurations+"/custom-pod-initializer?fieldManager=m", guideConfiguration, "Content-Type", applyPatch).ok()
	path := configurations + "/custom-pod-initializer"
	a := s.send("PATCH", path, object{"initializers": []object{{"name": "second.example.com", "rules": []object{{"apiGroups": []string{"*"}, "apiVersions": []string{"*"}, "resources": []string{"*"}}}}}},
		"Content-Type", strategicPatch).ok()
	var got struct {
		Metadata     metav1.ObjectMeta
		Initializers []struct{ Name string }
	}
	if err := json.Unmarshal(a.Body, &got); err != nil || len(got.Initializers) != 2 || got.Metadata.Generation != 2 {
		t.Errorf("patched to %s, %v", a.Body, err)
	}
	if a := s.send("GET", path, nil, "Accept", protobuf).ok(); !bytes.Contains(a.Body, []byte("podimage.example.com")) {
		t.Errorf("in protobuf it is %q", a.Body)
	}
	status := s.send("POST", configurations, object{"metadata": object{"name": "bad"}, "initializers": []object{{"name": "short", "rules": []object{{"apiGroups": []string{"", "*"},
		"apiVersions": []string{""}, "resources": []string{"pods/status", "*"}}, {}}}}}).refused(422, metav1.StatusReasonInvalid)
	var fields []string
	for _, cause := range status.Details.Causes {
		fields = append(fields, cause.Field)
	}
	want := []string{"initializers[0].name", "initializers[0].rules[0].apiGroups", "initializers[0].rules[0].apiVersions[0]", "initializers[0].rules[0].resources[0]", "initializers[0].rules[0].resources",
		"initializers[0].rules[1].apiGroups", "initializers[0].rules[1].apiVersions", "initializers[0].rules[1].resources"}
	if slices.Sort(fields); !slices.Equal(fields, slices.Sorted(slices.Values(want))) {
		t.Errorf("fields %q", fields)
	}
	s.send("DELETE", path, nil).ok()
	if !apierrors.IsNotFound(&apierrors.StatusError{ErrStatus: *s.send("GET", path, nil).refused(404, metav1.StatusReasonNotFound)}) {
		t.Error("it is still there")
	}
}
