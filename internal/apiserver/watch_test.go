package apiserver_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apiserver/authn/clientcert"
)

const protobuf = "application/vnd.kubernetes.protobuf"

// bubble runs a test with a clock of its own, which moves when everybody waits.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// settled starts a server in a bubble and waits until it writes nothing by itself.
func settled(t *testing.T, change ...func(*apiserver.Options)) *server {
	t.Helper()
	s := start(t, change...)
	time.Sleep(10 * time.Millisecond) // the server's own loops look each millisecond whether it is ready
	synctest.Wait()
	return s
}

// create creates a config map and returns its version.
func (s *server) create(name string, labels map[string]string) int64 {
	s.t.Helper()
	cm := configMap(name)
	cm["metadata"].(object)["labels"] = labels
	return s.send("POST", inNamespace("configmaps"), cm).ok().version()
}

func (s *server) relabel(name string, labels map[string]any) int64 {
	s.t.Helper()
	return s.send("PATCH", inNamespace("configmaps", name), object{"metadata": object{"labels": labels}}, "Content-Type", "application/merge-patch+json").ok().version()
}

// remove deletes a config map and returns the version of the deletion.
func (s *server) remove(name string) int64 {
	s.t.Helper()
	s.send("DELETE", inNamespace("configmaps", name), nil).ok()
	revision, err := s.store.Revision(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return revision
}

func (a answer) version() int64 {
	a.t.Helper()
	v, err := strconv.ParseInt(into[metav1.PartialObjectMetadata](a).ResourceVersion, 10, 64)
	if err != nil {
		a.t.Fatalf("%v: %s", err, a.Body)
	}
	return v
}

// tell puts an event in a few words.
func tell(t testing.TB, e watch.Event) string {
	t.Helper()
	if status, ok := e.Object.(*metav1.Status); ok {
		return fmt.Sprintf("%s %d %s", e.Type, status.Code, status.Reason)
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		t.Fatalf("%s: %v", e.Type, err)
	}
	if e.Type == watch.Bookmark {
		return fmt.Sprintf("%s %s@%s %v", e.Type, kindOf(e.Object), m.GetResourceVersion(), m.GetAnnotations())
	}
	return fmt.Sprintf("%s %s@%s", e.Type, m.GetName(), m.GetResourceVersion())
}

func kindOf(obj runtime.Object) string { return strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1.") }

// told waits for some events.
func told(t testing.TB, w watch.Interface, n int) []string {
	t.Helper()
	var got []string
	for len(got) < n {
		select {
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended after %q", got)
			}
			got = append(got, tell(t, e))
		case <-time.After(time.Minute - time.Millisecond):
			t.Fatalf("nothing more after %q", got)
		}
	}
	return got
}

// ended waits for the end of a watch and returns what came before.
func ended(t testing.TB, w watch.Interface) []string {
	t.Helper()
	var got []string
	for e := range w.ResultChan() {
		got = append(got, tell(t, e))
	}
	return got
}

func same(t testing.TB, got []string, want ...string) {
	t.Helper()
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("told\n%s\nwant\n%s", g, w)
	}
}

func TestWatchFromNow(t *testing.T) {
	for _, accept := range []string{"application/json", protobuf} {
		bubble(t, func(t *testing.T) {
			s := settled(t)
			one := s.create("one", nil)
			w := s.watch(inNamespace("configmaps")+"?watch=true", accept, nil)
			same(t, told(t, w, 1), fmt.Sprintf("ADDED one@%d", one))
			two := s.create("two", nil)
			changed := s.relabel("one", object{"a": "b"})
			gone := s.remove("two")
			same(t, told(t, w, 3), fmt.Sprintf("ADDED two@%d", two), fmt.Sprintf("MODIFIED one@%d", changed), fmt.Sprintf("DELETED two@%d", gone))
		})
	}
}

// history writes a few changes and returns how a watcher of everything is told them.
func history(s *server) []string {
	s.t.Helper()
	return []string{
		fmt.Sprintf("ADDED a@%d", s.create("a", map[string]string{"app": "x"})),
		fmt.Sprintf("ADDED b@%d", s.create("b", map[string]string{"app": "y"})),
		fmt.Sprintf("MODIFIED a@%d", s.relabel("a", object{"app": "y"})),
		fmt.Sprintf("MODIFIED b@%d", s.relabel("b", object{"app": "x"})),
		fmt.Sprintf("DELETED a@%d", s.remove("a")),
		fmt.Sprintf("MODIFIED b@%d", s.relabel("b", object{"app": "x", "more": "yes"})),
		fmt.Sprintf("DELETED b@%d", s.remove("b")),
		fmt.Sprintf("ADDED c@%d", s.create("c", map[string]string{"app": "x"})),
	}
}

func versionOf(line string) int64 {
	_, v, _ := strings.Cut(line, "@")
	n, _ := strconv.ParseInt(v, 10, 64)
	return n
}

// A watch may resume after any version, whether the cache remembers it or only the store.
func TestWatchResumesAnywhere(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		for _, accept := range []string{"application/json", protobuf} {
			bubble(t, func(t *testing.T) {
				s := settled(t)
				lines := history(s)
				first := versionOf(lines[0]) - 1
				if restarted {
					s = settled(t, func(o *apiserver.Options) { o.Store = unclosedStore{s.store} })
				}
				for i := range lines {
					after := first
					if i > 0 {
						after = versionOf(lines[i-1])
					}
					w := s.watch(inNamespace("configmaps")+fmt.Sprintf("?watch=true&resourceVersion=%d", after), accept, nil)
					same(t, told(t, w, len(lines)-i), lines[i:]...)
					live := s.relabel("c", object{"n": fmt.Sprint(i)})
					same(t, told(t, w, 1), fmt.Sprintf("MODIFIED c@%d", live))
					lines = append(lines, fmt.Sprintf("MODIFIED c@%d", live))
				}
			})
		}
	}
}

// With a selector, objects that begin or cease to match come and go. Those that go do so in their last matching state, with the
// version of the change.
func TestWatchSelectors(t *testing.T) {
	for _, restarted := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			s := settled(t)
			lines := history(s)
			if restarted {
				s = settled(t, func(o *apiserver.Options) { o.Store = unclosedStore{s.store} })
			}
			v := func(i int) int64 { return versionOf(lines[i]) }
			after := fmt.Sprintf("?watch=true&resourceVersion=%d", v(0)-1)
			x := s.watch(inNamespace("configmaps")+after+"&labelSelector=app%3Dx", protobuf, nil)
			want := []string{fmt.Sprintf("ADDED a@%d", v(0)), fmt.Sprintf("DELETED a@%d", v(2)), fmt.Sprintf("ADDED b@%d", v(3)),
				fmt.Sprintf("MODIFIED b@%d", v(5)), fmt.Sprintf("DELETED b@%d", v(6)), fmt.Sprintf("ADDED c@%d", v(7))}
			same(t, told(t, x, len(want)), want...)
			named := s.watch("/api/v1/configmaps"+after+"&fieldSelector=metadata.name%3Da", "application/json", nil)
			same(t, told(t, named, 3), fmt.Sprintf("ADDED a@%d", v(0)), fmt.Sprintf("MODIFIED a@%d", v(2)), fmt.Sprintf("DELETED a@%d", v(4)))
			elsewhere := s.watch("/api/v1/namespaces/kube-system/configmaps"+after+"&timeoutSeconds=5", "application/json", nil)
			same(t, ended(t, elsewhere))
			old := s.watch("/api/v1/watch/namespaces/default/configmaps/b"+strings.Replace(after, "watch=true&", "", 1), "application/json", nil)
			same(t, told(t, old, 4), lines[1], lines[3], lines[5], lines[6])
			// What a selector let go is told in its last matching state.
			w := s.watch(inNamespace("configmaps")+after+"&labelSelector=app%3Dx", "application/json", nil)
			<-w.ResultChan()
			if e := <-w.ResultChan(); e.Object.(*corev1.ConfigMap).Labels["app"] != "x" {
				t.Errorf("told %v", e.Object)
			}
		})
	}
}

func TestWatchFields(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		w := s.watch(inNamespace("pods")+"?watch=true&fieldSelector=spec.nodeName%3Dn,status.phase!%3DRunning", protobuf, nil)
		pod := object{"metadata": object{"name": "p"}, "spec": object{"containers": []object{{"name": "c", "image": "i"}}}}
		s.send("POST", inNamespace("pods"), pod).ok()
		pod["metadata"].(object)["name"] = "q"
		pod["spec"].(object)["nodeName"] = "n"
		q := s.send("POST", inNamespace("pods"), pod).ok().version()
		running := s.send("PATCH", inNamespace("pods", "q", "status"), `{"status":{"phase":"Running"}}`, "Content-Type", "application/merge-patch+json").ok().version()
		same(t, told(t, w, 2), fmt.Sprintf("ADDED q@%d", q), fmt.Sprintf("DELETED q@%d", running))
	})
}

// After a compaction what was forgotten cannot be told: the client learns it in the stream.
func TestWatchExpires(t *testing.T) {
	for _, accept := range []string{"application/json", protobuf, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/json;as=Table;g=meta.k8s.io;v=v1"} {
		bubble(t, func(t *testing.T) {
			s := settled(t)
			lines := history(s)
			last := versionOf(lines[len(lines)-1])
			if err := s.store.Compact(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			s = settled(t, func(o *apiserver.Options) { o.Store = unclosedStore{s.store} })
			w := s.watch(inNamespace("configmaps")+fmt.Sprintf("?watch=true&resourceVersion=%d", last-2), accept, nil)
			same(t, ended(t, w), "ERROR 410 Expired")
			fine := s.watch(inNamespace("configmaps")+fmt.Sprintf("?watch=true&resourceVersion=%d&timeoutSeconds=1", last), "application/json", nil)
			same(t, ended(t, fine))
		})
	}
}

// A watch that asks for the initial state is told when it is complete.
func TestWatchList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		a, b := s.create("a", nil), s.create("b", nil)
		end := func(v int64) string {
			return fmt.Sprintf("BOOKMARK ConfigMap@%d map[k8s.io/initial-events-end:true]", v)
		}
		for _, c := range []struct {
			query string
			want  []string
		}{
			{"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", []string{fmt.Sprintf("ADDED a@%d", a), fmt.Sprintf("ADDED b@%d", b), end(b)}},
			{"sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=0&allowWatchBookmarks=true", []string{fmt.Sprintf("ADDED a@%d", a), fmt.Sprintf("ADDED b@%d", b), end(b)}},
			{fmt.Sprintf("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=%d&allowWatchBookmarks=true", a), []string{fmt.Sprintf("ADDED a@%d", a), fmt.Sprintf("ADDED b@%d", b), end(b)}},
			{"allowWatchBookmarks=true", []string{fmt.Sprintf("ADDED a@%d", a), fmt.Sprintf("ADDED b@%d", b), end(b)}}, // as before watches could say what they want
			{"sendInitialEvents=true&resourceVersionMatch=NotOlderThan", []string{fmt.Sprintf("ADDED a@%d", a), fmt.Sprintf("ADDED b@%d", b)}},
			{"sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", nil},
			{fmt.Sprintf("sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion=%d", a), []string{fmt.Sprintf("ADDED b@%d", b)}},
		} {
			w := s.watch(inNamespace("configmaps")+"?watch=true&timeoutSeconds=5&"+c.query, protobuf, nil)
			same(t, ended(t, w), c.want...)
		}
	})
}

// Bookmarks come every minute with the version everything up to which has been told, also when it moved elsewhere.
func TestWatchBookmarks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		begun := s.create("a", nil)
		path := inNamespace("configmaps") + fmt.Sprintf("?watch=true&resourceVersion=%d&timeoutSeconds=150", begun)
		asked := s.watch(path+"&allowWatchBookmarks=true", protobuf, nil)
		silent := s.watch(path, protobuf, nil)
		partial := s.watch(path+"&allowWatchBookmarks=true", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", metadataDecoder())
		all := make([]chan []string, 3)
		for i, w := range []watch.Interface{asked, silent, partial} {
			all[i] = make(chan []string)
			go func() { all[i] <- ended(t, w) }()
		}
		time.Sleep(30 * time.Second)
		elsewhere := s.send("POST", inNamespace("secrets"), object{"metadata": object{"name": "elsewhere"}}).ok().version()
		time.Sleep(45 * time.Second)
		b := s.create("b", nil)
		same(t, <-all[0], fmt.Sprintf("BOOKMARK ConfigMap@%d map[]", elsewhere), fmt.Sprintf("ADDED b@%d", b), fmt.Sprintf("BOOKMARK ConfigMap@%d map[]", b))
		same(t, <-all[1], fmt.Sprintf("ADDED b@%d", b))
		same(t, <-all[2], fmt.Sprintf("BOOKMARK PartialObjectMetadata@%d map[]", elsewhere), fmt.Sprintf("ADDED b@%d", b), fmt.Sprintf("BOOKMARK PartialObjectMetadata@%d map[]", b))
	})
}

func TestWatchLasts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		for query, want := range map[string][2]time.Duration{
			"timeoutSeconds=7":                  {7 * time.Second, 7 * time.Second},
			"":                                  {30 * time.Minute, time.Hour},
			"timeoutSeconds=0&timeout=10s":      {30 * time.Minute, time.Hour},
			"timeoutSeconds=1&resourceVersion=": {time.Second, time.Second},
		} {
			began := time.Now()
			same(t, ended(t, s.watch(inNamespace("configmaps")+"?watch=true&"+query, "application/json", nil)))
			if took := time.Since(began); took < want[0] || took > want[1] {
				t.Errorf("%q: took %v, want %v", query, took, want)
			}
		}
		s = settled(t, func(o *apiserver.Options) { o.MinWatch = time.Minute })
		began := time.Now()
		same(t, ended(t, s.watch(inNamespace("configmaps")+"?watch=true", "application/json", nil)))
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute {
			t.Errorf("of a minute at least: took %v", took)
		}
	})
}

// Other servers are told whom this one recognizes, again if somebody deletes it.
func TestTrustIsPublished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bundle, err := clientcert.NewBundle(authntest.NewCA(t, authntest.Valid(time.Now(), "mine")).PEM())
		if err != nil {
			t.Fatal(err)
		}
		s := settled(t, func(o *apiserver.Options) { o.Authentication.ClientCAs = func() *clientcert.Bundle { return bundle } })
		const path = "/api/v1/namespaces/kube-system/configmaps/"
		published := func() string {
			t.Helper()
			return into[corev1.ConfigMap](s.send("GET", path+"extension-apiserver-authentication", nil).ok()).Data["client-ca-file"]
		}
		if got := published(); got != string(bundle.PEM) {
			t.Errorf("published: %s", got)
		}
		s.send("DELETE", path+"extension-apiserver-authentication", nil).ok()
		time.Sleep(61 * time.Second)
		if got := published(); got != string(bundle.PEM) {
			t.Errorf("published again: %s", got)
		}
		if since := into[corev1.ConfigMap](s.send("GET", path+"kube-apiserver-legacy-service-account-token-tracking", nil).ok()).Data["since"]; since != "2000-01-01" {
			t.Errorf("tokens are tracked since %s", since) // a bubble's time begins then
		}
	})
}

// The header comes at once, before any event.
func TestWatchAnswersAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		for accept, want := range map[string]string{
			"": "application/json", "application/json": "application/json", "application/json;stream=watch": "application/json",
			protobuf: protobuf + ";stream=watch", protobuf + ";stream=watch": protobuf + ";stream=watch",
		} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", "http://skiff"+inNamespace("configmaps")+"?watch=true", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", accept)
			response, err := s.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := response.Header.Get("Content-Type"); response.StatusCode != 200 || got != want {
				t.Errorf("%q: %d %s, want %s", accept, response.StatusCode, got, want)
			}
			response.Body.Close()
		}
	})
}

// YAML has no form for streams.
func TestWatchInYAML(t *testing.T) {
	got := start(t).send("GET", inNamespace("configmaps")+"?watch=true", nil, "Accept", "application/yaml")
	var status metav1.Status
	if err := yaml.Unmarshal(got.Body, &status); err != nil || got.Code != http.StatusNotAcceptable ||
		status.Message != "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

func metadataDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}

func TestWatchPartial(t *testing.T) {
	for _, media := range []string{"application/json", protobuf} {
		bubble(t, func(t *testing.T) {
			s := settled(t)
			uid := into[corev1.ConfigMap](s.send("POST", inNamespace("configmaps"), configMap("a", "k", "v")).ok()).UID
			w := s.watch(inNamespace("configmaps")+"?watch=true", media+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1", metadataDecoder())
			e := <-w.ResultChan()
			partial, ok := e.Object.(*metav1.PartialObjectMetadata)
			if !ok || e.Type != watch.Added || partial.Name != "a" || partial.UID != uid || partial.Kind != "PartialObjectMetadata" || partial.APIVersion != "meta.k8s.io/v1" {
				t.Errorf("%s %#v", e.Type, e.Object)
			}
			gone := s.remove("a")
			if got := tell(t, <-w.ResultChan()); got != fmt.Sprintf("DELETED a@%d", gone) {
				t.Error(got)
			}
		})
	}
}

// Only the first table of a watch has columns.
func TestWatchTable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		a := s.create("a", map[string]string{"app": "x"})
		path := inNamespace("configmaps") + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=70"
		table := func(e watch.Event) *metav1.Table {
			t.Helper()
			b, err := json.Marshal(e.Object)
			if err != nil {
				t.Fatal(err)
			}
			out := &metav1.Table{}
			if err := json.Unmarshal(b, out); err != nil || out.Kind != "Table" || out.APIVersion != "meta.k8s.io/v1" || len(out.Rows) != 1 {
				t.Fatalf("%v: %s", err, b)
			}
			return out
		}
		w := s.watch(path+"&includeObject=Object", "application/json;as=Table;g=meta.k8s.io;v=v1", unstructured.UnstructuredJSONScheme)
		first := table(<-w.ResultChan())
		if len(first.ColumnDefinitions) != 3 || fmt.Sprint(first.Rows[0].Cells) != "[a 0 0s]" || first.ResourceVersion != fmt.Sprint(a) {
			t.Errorf("%+v", first)
		}
		whole := &corev1.ConfigMap{}
		if err := json.Unmarshal(first.Rows[0].Object.Raw, whole); err != nil || whole.Kind != "ConfigMap" || whole.Labels["app"] != "x" {
			t.Errorf("%v %+v", err, whole)
		}
		end := table(<-w.ResultChan()) // the initial state is complete
		mark := &metav1.PartialObjectMetadata{}
		if err := json.Unmarshal(end.Rows[0].Object.Raw, mark); err != nil || mark.Annotations[metav1.InitialEventsAnnotationKey] != "true" || len(end.ColumnDefinitions) != 0 {
			t.Errorf("%v %s", err, end.Rows[0].Object.Raw)
		}
		time.Sleep(10 * time.Second)
		changed := s.relabel("a", object{"app": "y"})
		second := table(<-w.ResultChan())
		if len(second.ColumnDefinitions) != 0 || fmt.Sprint(second.Rows[0].Cells) != "[a 0 10s]" || second.ResourceVersion != fmt.Sprint(changed) {
			t.Errorf("%+v", second)
		}
		metadata := s.watch(path, "application/json;as=Table;g=meta.k8s.io;v=v1beta1,application/json", unstructured.UnstructuredJSONScheme)
		if row := (<-metadata.ResultChan()).Object.(*unstructured.Unstructured); row.GetAPIVersion() != "meta.k8s.io/v1beta1" {
			t.Errorf("%v", row)
		}
		none := s.watch(path+"&includeObject=None", "application/json;as=Table;g=meta.k8s.io;v=v1", unstructured.UnstructuredJSONScheme)
		if row := (<-none.ResultChan()).Object.(*unstructured.Unstructured).Object["rows"].([]any)[0].(map[string]any); row["object"] != nil {
			t.Errorf("%v", row)
		}
	})
}

// A version that has not happened yet: reads wait a little for it.
func TestFutureVersions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		now := s.create("a", nil)
		for _, path := range []string{"/a?resourceVersion=%d", "?resourceVersion=%d", "?resourceVersion=%d&resourceVersionMatch=Exact", "?resourceVersion=%d&limit=5"} {
			began := time.Now()
			status := s.send("GET", inNamespace("configmaps")+fmt.Sprintf(path, now+1000), nil).refused(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
			if took := time.Since(began); took != 3*time.Second {
				t.Errorf("%s took %v", path, took)
			}
			if len(status.Details.Causes) != 1 || status.Details.Causes[0].Type != metav1.CauseTypeResourceVersionTooLarge || status.Details.RetryAfterSeconds != 1 ||
				status.Message != fmt.Sprintf("Timeout: Too large resource version: %d, current: %d", now+1000, now) {
				t.Errorf("%s: %+v", path, status)
			}
			// It may yet come.
			done := make(chan answer)
			next := s.create("b", nil) + 1 // the deletion
			go func() { done <- s.send("GET", inNamespace("configmaps")+fmt.Sprintf(path, next), nil) }()
			time.Sleep(time.Second)
			now = s.remove("b")
			(<-done).ok()
		}
		token := base64.RawURLEncoding.EncodeToString([]byte(fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":%d,"start":"default/a"}`, now+1000)))
		s.send("GET", inNamespace("configmaps")+"?limit=5&continue="+token, nil).refused(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
		w := s.watch(inNamespace("configmaps")+fmt.Sprintf("?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=%d", now+1000), protobuf, nil)
		same(t, ended(t, w), "ERROR 504 Timeout")
	})
}

// Ending the server ends its watches, each as if its time was over.
func TestDrainEndsWatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		a := s.create("a", nil)
		w := s.watch(inNamespace("configmaps")+"?watch=true", "application/json", nil)
		same(t, told(t, w, 1), fmt.Sprintf("ADDED a@%d", a))
		s.api.Drain()
		same(t, ended(t, w))
		s.send("GET", inNamespace("configmaps"), nil).refused(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		if got := s.send("GET", "/readyz", nil); got.Code != 500 || !strings.Contains(string(got.Body), "[-]shutdown failed") {
			t.Errorf("%d %s", got.Code, got.Body)
		}
		if got := s.send("GET", "/livez", nil); got.Code != 200 {
			t.Errorf("%d %s", got.Code, got.Body)
		}
	})
}

// A client that goes away ends its watch on the server.
func TestWatchEndsWithItsClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://skiff"+inNamespace("configmaps")+"?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := s.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if _, err := io.ReadAll(response.Body); err == nil {
			t.Error("the body of a watch that was closed can be read")
		}
		synctest.Wait() // in a bubble that the handler has left, or the test does not end
	})
}

// A reader slower than the cache remembers is told everything nevertheless, from the store's history.
func TestWatchSlowly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		s.create("a", nil)
		c := s.client(protobuf).CoreV1().ConfigMaps("default")
		w, err := c.Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		<-w.ResultChan()
		const changes = 10000
		var want int64
		for i := range changes {
			cm, err := c.Patch(t.Context(), "a", types.MergePatchType, []byte(fmt.Sprintf(`{"data":{"n":"%d"}}`, i)), metav1.PatchOptions{})
			if err != nil {
				t.Fatal(err)
			}
			want, _ = strconv.ParseInt(cm.ResourceVersion, 10, 64)
		}
		for i := range changes {
			e := <-w.ResultChan()
			if cm, ok := e.Object.(*corev1.ConfigMap); !ok || cm.Data["n"] != fmt.Sprint(i) {
				t.Fatalf("change %d is %s %v", i, e.Type, e.Object)
			}
		}
		if next := s.relabel("a", object{"x": "y"}); next != want+1 {
			t.Errorf("%d follows %d", next, want)
		}
		same(t, told(t, w, 1), fmt.Sprintf("MODIFIED a@%d", want+1))
	})
}

// Objects that are served in two versions are the same in both, also to watchers.
func TestTwoForms(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		const newer, older = "/apis/events.k8s.io/v1/namespaces/default/events", "/api/v1/namespaces/default/events"
		for _, accept := range []string{"application/json", protobuf} {
			asNewer, asOlder := s.watch(newer+"?watch=true", accept, nil), s.watch(older+"?watch=true&fieldSelector=involvedObject.name%3Dp", accept, nil)
			name := "e-" + strings.ReplaceAll(accept, "/", "-")
			made := s.send("POST", older, object{"metadata": object{"name": name}, "involvedObject": object{"namespace": "default", "name": "p"}, "message": "hello", "reason": "Because", "type": "Normal"}).ok().version()
			if e, ok := (<-asNewer.ResultChan()).Object.(*eventsv1.Event); !ok || e.Note != "hello" || e.Regarding.Name != "p" || e.ResourceVersion != fmt.Sprint(made) {
				t.Errorf("%s: %+v", accept, e)
			}
			if e, ok := (<-asOlder.ResultChan()).Object.(*corev1.Event); !ok || e.Message != "hello" || e.InvolvedObject.Name != "p" || e.ResourceVersion != fmt.Sprint(made) {
				t.Errorf("%s: %+v", accept, e)
			}
			changed := s.send("PATCH", newer+"/"+name, `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/merge-patch+json").ok().version()
			same(t, told(t, asOlder, 1), fmt.Sprintf("MODIFIED %s@%d", name, changed))
			list := into[corev1.EventList](s.send("GET", older+"?fieldSelector=reason%3DBecause,metadata.name%3D"+name, nil).ok())
			if len(list.Items) != 1 || list.Items[0].Labels["a"] != "b" || list.Items[0].Message != "hello" {
				t.Errorf("%+v", list)
			}
			asNewer.Stop()
			asOlder.Stop()
			s.send("DELETE", newer+"/"+name, nil).ok()
		}
	})
}
