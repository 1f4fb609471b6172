package apiserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestConversionFaults: what a webhook may not answer is refused with upstream's words, and the object is still there in the version in which it is stored.
func TestConversionFaults(t *testing.T) {
	s, w := start(t), newConversionWebhook(t)
	s.define(endpointsDefinition(w.spec(), "v1"))
	const webhook = "conversion webhook for example.com/v1, Kind=Spot "
	metadata := func(o object) object { return o["metadata"].(object) }
	changed := func(change func(object)) func(http.ResponseWriter, object) {
		return func(rw http.ResponseWriter, review object) {
			for _, o := range review["response"].(object)["convertedObjects"].([]object) {
				change(o)
			}
			_ = json.NewEncoder(rw).Encode(review)
		}
	}
	response := func(change func(review, response object)) func(http.ResponseWriter, object) {
		return func(rw http.ResponseWriter, review object) {
			change(review, review["response"].(object))
			_ = json.NewEncoder(rw).Encode(review)
		}
	}
	text := func(status int, text string) func(http.ResponseWriter, object) {
		return func(rw http.ResponseWriter, _ object) {
			rw.Header().Set("Location", "/elsewhere")
			rw.WriteHeader(status)
			_, _ = rw.Write([]byte(text))
		}
	}
	for i, c := range []struct {
		fault   string
		answer  func(http.ResponseWriter, object)
		refused string // how the message begins
	}{
		{"another name", changed(func(o object) { metadata(o)["name"] = "x" }), webhook + "returned invalid object: must have the same name: "},
		{"another namespace", changed(func(o object) { metadata(o)["namespace"] = "x" }), webhook + "returned invalid object: must have the same namespace: default != x"},
		{"another uid of the object", changed(func(o object) { delete(metadata(o), "uid") }), webhook + "returned invalid object: must have the same UID: "},
		{"another version", changed(func(o object) { o["apiVersion"] = "example.com/v3" }),
			webhook + "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received example.com/v3)"},
		{"another kind", changed(func(o object) { o["kind"] = "X" }), webhook + "returned invalid object at index 0: invalid kind (expected Spot, received X)"},
		{"no metadata but the name", changed(func(o object) { o["metadata"] = "x" }), webhook + "returned invalid "},
		{"a label that is no string", changed(func(o object) { metadata(o)["labels"] = object{"a": 1} }),
			webhook + "returned invalid metadata: metadata.labels[a] must be a string, but is int64 in converted object"},
		{"labels that are no map", changed(func(o object) { metadata(o)["labels"] = "x" }), webhook + "returned invalid metadata: invalid metadata.labels of type string in converted object"},
		{"an invalid label", changed(func(o object) { metadata(o)["labels"] = object{"a": "b c"} }), webhook + `returned invalid metadata: metadata.labels: Invalid value: "b c": `},
		{"an invalid annotation", changed(func(o object) { metadata(o)["annotations"] = object{"a b": ""} }), webhook + `returned invalid metadata: metadata.annotation: Invalid value: "a b": `},
		{"another uid of the review", response(func(_, r object) { r["uid"] = "x" }), webhook + `failed: expected response.uid="`},
		{"no object", response(func(_, r object) { r["convertedObjects"] = nil }), webhook + "returned 0 objects, expected 1"},
		{"no response", response(func(review, _ object) { delete(review, "response") }), webhook + "failed: no response provided"},
		{"a failure", response(func(_, r object) { r["result"] = object{"status": "Failure", "message": "no"} }), webhook + "failed: no"},
		{"a failure without a message", response(func(_, r object) { r["result"] = object{"status": "Failure"} }), webhook + "failed: response.result.status was 'Failure', not 'Success'"},
		{"another kind of review", response(func(review, _ object) { review["kind"] = "AdmissionReview" }), webhook + `failed: no kind "AdmissionReview" is registered for version "apiextensions.k8s.io/v1"`},
		{"garbage", text(200, "garbage"), webhook + "failed: couldn't get version/kind; json parse error: "},
		{"nothing", text(200, ""), webhook + "failed: 0-length response with status code: 200"},
		{"an error", text(500, "down"), webhook + `failed: an error on the server ("down") has prevented the request from succeeding`},
		{"a redirect", text(302, ""), webhook + "failed: "},
	} {
		name := fmt.Sprintf("a%d", i)
		s.send("POST", spotsV1, spotV1(name, "h:1")).ok() // anew each time: what was converted once is kept
		w.answerWith(c.answer)
		status := s.send("GET", spotsV2+"/"+name, nil).refused(500, "")
		if !strings.HasPrefix(status.Message, c.refused) {
			t.Errorf("%s: refused with\n%s\nwant\n%s", c.fault, status.Message, c.refused)
		}
		if got := where(s.send("GET", spotsV1+"/"+name, nil)); got != "example.com/v1map[hostPort:h:1]" {
			t.Errorf("%s: in the stored version it is %s", c.fault, got)
		}
		w.answerWith(nil)
		if got := where(s.send("GET", spotsV2+"/"+name, nil)); got != "example.com/v2map[host:h port:1]" {
			t.Errorf("%s: afterwards it is %s", c.fault, got)
		}
	}
}

// TestConvertedMetadata: of metadata a webhook changes labels and annotations; everything else stays as it was.
func TestConvertedMetadata(t *testing.T) {
	s, w := start(t), newConversionWebhook(t)
	s.define(endpointsDefinition(w.spec(), "v1"))
	w.set("", func(o object) {
		m := o["metadata"].(object)
		m["labels"], m["annotations"] = object{"l": "1"}, object{"a": "2"}
		m["finalizers"], m["generation"], m["creationTimestamp"], m["resourceVersion"], m["ownerReferences"] = []any{"example.com/x"}, 7, "2001-01-01T00:00:00Z", "1", []any{"x"}
		delete(m, "managedFields")
	})
	made := into[metav1.PartialObjectMetadata](s.send("POST", spotsV1, spotV1("a", "h:1")).ok())
	got := into[metav1.PartialObjectMetadata](s.send("GET", spotsV2+"/a", nil).ok())
	if fmt.Sprint(got.Labels, got.Annotations) != "map[l:1] map[a:2]" {
		t.Errorf("labels %v and annotations %v", got.Labels, got.Annotations)
	}
	got.Labels, got.Annotations = nil, nil
	if want, is := fmt.Sprint(made.ObjectMeta), fmt.Sprint(got.ObjectMeta); is != want {
		t.Errorf("metadata is\n%s\nwant\n%s", is, want)
	}
	if list := into[metav1.PartialObjectMetadataList](s.send("GET", spotsV2+"?labelSelector=l=1", nil).ok()); len(list.Items) != 1 {
		t.Errorf("%d objects were selected by the label that they have in v2", len(list.Items))
	}
}

// TestConversionOfLists: a list is converted in one review, fails if one object of it cannot be converted, and can be read again without that object.
func TestConversionOfLists(t *testing.T) {
	s, w := start(t), newConversionWebhook(t)
	s.define(endpointsDefinition(w.spec(), "v1"))
	for i := range 20 {
		s.send("POST", spotsV1, spotV1(fmt.Sprintf("a%02d", i), "h:1")).ok()
	}
	w.set("a07", nil)
	status := s.send("GET", spotsV2, nil).refused(500, "")
	if want := "conversion webhook for example.com/v1, Kind=Spot failed: refused a07"; status.Message != want {
		t.Errorf("refused with %s, want %s", status.Message, want)
	}
	if list := into[metav1.PartialObjectMetadataList](s.send("GET", spotsV1, nil).ok()); len(list.Items) != 20 {
		t.Errorf("%d objects in the stored version", len(list.Items))
	}
	s.send("DELETE", spotsV2+"/a07", nil).ok()
	calls, objects := w.calls.Load(), w.objects.Load()
	if list := into[metav1.PartialObjectMetadataList](s.send("GET", spotsV2, nil).ok()); len(list.Items) != 19 {
		t.Errorf("%d objects after the delete", len(list.Items))
	}
	if calls, objects = w.calls.Load()-calls, w.objects.Load()-objects; calls != 1 || objects != 19 {
		t.Errorf("%d reviews of %d objects", calls, objects)
	}
}

// TestConversionAway: without its webhook, objects are read in the version in which they are stored, and in the other one as far as they were converted
// before. Their metadata is read, and they can be deleted.
func TestConversionAway(t *testing.T) {
	s, w := start(t), newConversionWebhook(t)
	s.define(endpointsDefinition(w.spec(), "v1"))
	s.send("POST", spotsV1, spotV1("known", "h:1")).ok()
	s.send("GET", spotsV2+"/known", nil).ok()
	s.send("POST", spotsV1, spotV1("unknown", "h:1")).ok()
	w.Close()
	s.send("GET", spotsV2+"/known", nil).ok()
	for _, path := range []string{spotsV2, spotsV2 + "/unknown"} {
		status := s.send("GET", path, nil).refused(500, "")
		if want := `conversion webhook for example.com/v1, Kind=Spot failed: Post "` + w.URL + `/convert?timeout=30s": dial tcp `; !strings.HasPrefix(status.Message, want) {
			t.Errorf("refused with %s, want %s", status.Message, want)
		}
	}
	s.send("POST", spotsV2, spotV2("new", "h", "1")).refused(500, "")
	for _, path := range []string{spotsV1, spotsV1 + "/unknown"} {
		s.send("GET", path, nil).ok()
	}
	list := into[metav1.PartialObjectMetadataList](s.send("GET", spotsV2, nil, "Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").ok())
	if len(list.Items) != 2 {
		t.Errorf("%d objects in the list of metadata", len(list.Items))
	}
	s.send("DELETE", spotsV2+"/unknown", nil).ok()
	s.send("DELETE", definitions+"/spots.example.com", nil).ok()
	s.eventually("deleted with its definition", func() bool { return s.send("GET", definitions+"/spots.example.com", nil).Code == 404 })
}

// TestConversionHangs: a read that a webhook holds up ends with the time that the client gives it, and with the client.
func TestConversionHangs(t *testing.T) {
	s, w := start(t), newConversionWebhook(t)
	s.define(endpointsDefinition(w.spec(), "v1"))
	s.send("POST", spotsV1, spotV1("a", "h:1")).ok()
	released := make(chan struct{})
	began := make(chan struct{}, 10)
	w.answerWith(func(http.ResponseWriter, object) { began <- struct{}{}; <-released })
	defer close(released)
	s.send("GET", spotsV2+"/a?timeout=1s", nil).refused(504, metav1.StatusReasonTimeout)
	<-began
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.sendContext(ctx, "GET", spotsV2+"/a", nil)
	}()
	<-began
	cancel()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the read outlives its client")
	}
}

// TestWatchConverts: watches show changes in the version of each, and end with an error at a change that cannot be converted.
func TestWatchConverts(t *testing.T) {
	s, w := start(t), newConversionWebhook(t)
	s.define(endpointsDefinition(w.spec(), "v1"))
	ts := httptest.NewServer(s)
	t.Cleanup(ts.Close) // after the watches are closed
	s.send("POST", spotsV1, spotV1("a", "h:1")).ok()
	type event struct {
		Type   watch.EventType
		Object object
	}
	follow := func(path string) func() string {
		r, err := http.NewRequestWithContext(t.Context(), "GET", ts.URL+path+"?watch=true&timeoutSeconds=60", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		lines := bufio.NewScanner(response.Body)
		return func() string {
			t.Helper()
			if !lines.Scan() {
				t.Fatalf("the watch has ended: %v", lines.Err())
			}
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatal(err)
			}
			if e.Type == watch.Error {
				return fmt.Sprint(e.Type, " ", e.Object["message"])
			}
			return fmt.Sprint(e.Type, " ", e.Object["apiVersion"], e.Object["spec"])
		}
	}
	v1, v2 := follow(spotsV1), follow(spotsV2)
	expect := func(next func() string, want string) {
		t.Helper()
		if got := next(); got != want {
			t.Errorf("the watch showed %s, want %s", got, want)
		}
	}
	expect(v1, "ADDED example.com/v1map[hostPort:h:1]")
	expect(v2, "ADDED example.com/v2map[host:h port:1]")
	s.send("PATCH", spotsV2+"/a", `{"spec":{"port":"2"}}`, "Content-Type", "application/merge-patch+json").ok()
	expect(v1, "MODIFIED example.com/v1map[hostPort:h:2]")
	expect(v2, "MODIFIED example.com/v2map[host:h port:2]")
	s.send("DELETE", spotsV1+"/a", nil).ok()
	expect(v1, "DELETED example.com/v1map[hostPort:h:2]")
	expect(v2, "DELETED example.com/v2map[host:h port:2]")
	w.set("b", nil)
	s.send("POST", spotsV1, spotV1("b", "h:1")).ok()
	expect(v1, "ADDED example.com/v1map[hostPort:h:1]")
	expect(v2, "ERROR conversion webhook for example.com/v1, Kind=Spot failed: refused b")
}
