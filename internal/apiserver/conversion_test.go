package apiserver_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// conversionWebhook is a conversion webhook of endpoints: v1 has spec.hostPort, v2 has spec.host and spec.port.
type conversionWebhook struct {
	*httptest.Server
	calls, objects atomic.Int64
	down           atomic.Bool // whether it answers with an error
	mu             sync.Mutex
	refused        string // the name of an object that it does not convert
	change         func(object)
	answer         func(http.ResponseWriter, object) // answers with, or instead of, a review
}

func newConversionWebhook(t testing.TB) *conversionWebhook {
	w := &conversionWebhook{}
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(w.serve))
	w.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that tests break off
	w.StartTLS()
	t.Cleanup(w.Close)
	return w
}

func (w *conversionWebhook) serve(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var review struct {
		APIVersion, Kind string
		Request          struct {
			UID               string
			DesiredAPIVersion string
			Objects           []object
		}
	}
	if err := json.Unmarshal(body, &review); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	if w.down.Load() {
		http.Error(rw, "the webhook is down", http.StatusInternalServerError)
		return
	}
	w.calls.Add(1)
	w.objects.Add(int64(len(review.Request.Objects)))
	w.mu.Lock()
	refused, change, answer := w.refused, w.change, w.answer
	w.mu.Unlock()
	result := object{"status": "Success"}
	for _, o := range review.Request.Objects {
		if o["metadata"].(object)["name"] == refused {
			result = object{"status": "Failure", "message": "refused " + refused}
		}
		convert(o, review.Request.DesiredAPIVersion)
		if change != nil {
			change(o)
		}
	}
	answered := object{"apiVersion": review.APIVersion, "kind": review.Kind,
		"response": object{"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": result}}
	if answer != nil {
		answer(rw, answered)
		return
	}
	_ = json.NewEncoder(rw).Encode(answered)
}

// convert converts an object in place.
func convert(o object, apiVersion string) {
	if o["apiVersion"] == apiVersion {
		panic("an object was sent that is in the version already")
	}
	o["apiVersion"] = apiVersion
	spec, ok := o["spec"].(object)
	if !ok {
		return
	}
	if strings.HasSuffix(apiVersion, "/v2") {
		host, port, _ := strings.Cut(fmt.Sprint(spec["hostPort"]), ":")
		delete(spec, "hostPort")
		spec["host"], spec["port"] = host, port
		return
	}
	spec["hostPort"] = fmt.Sprint(spec["host"], ":", spec["port"])
	delete(spec, "host")
	delete(spec, "port")
}

// set changes how the webhook answers.
func (w *conversionWebhook) set(refused string, change func(object)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused, w.change = refused, change
}

// answerWith has a function answer in place of the webhook, which is given the right review; nil: no more.
func (w *conversionWebhook) answerWith(answer func(http.ResponseWriter, object)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// spec returns the part of a definition that names the webhook.
func (w *conversionWebhook) spec() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.Certificate().Raw})
	config, _ := json.Marshal(object{"url": w.URL + "/convert", "caBundle": ca})
	return `{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1","v1beta1"],"clientConfig":` + string(config) + `}}`
}

// endpointsDefinition returns a definition whose objects are stored in v1 or v2.
func endpointsDefinition(conversion, storage string) string {
	version := func(name, fields, selectable string) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,"selectableFields":[%s],
			"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},
			"additionalPrinterColumns":[{"name":"Where","type":"string","jsonPath":".spec.%s"}],
			"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%s,"replicas":{"type":"integer"}}},
			"status":{"type":"object","properties":{"replicas":{"type":"integer"}}}}}}}`, name, name == storage, selectable,
			map[string]string{"v1": "hostPort", "v2": "host"}[name], fields)
	}
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"spots.example.com"},"spec":{
		"group":"example.com","scope":"Namespaced","names":{"plural":"spots","singular":"spot","kind":"Spot","listKind":"SpotList"},"conversion":` + conversion + `,"versions":[` +
		version("v1", `"hostPort":{"type":"string"}`, `{"jsonPath":".spec.hostPort"}`) + "," +
		version("v2", `"host":{"type":"string"},"port":{"type":"string"}`, `{"jsonPath":".spec.host"},{"jsonPath":".spec.port"}`) + `]}}`
}

const (
	spotsV1 = "/apis/example.com/v1/namespaces/default/spots"
	spotsV2 = "/apis/example.com/v2/namespaces/default/spots"
)

func spotV1(name, hostPort string) object {
	return object{"apiVersion": "example.com/v1", "kind": "Spot", "metadata": object{"name": name}, "spec": object{"hostPort": hostPort}}
}

func spotV2(name, host, port string) object {
	return object{"apiVersion": "example.com/v2", "kind": "Spot", "metadata": object{"name": name}, "spec": object{"host": host, "port": port}}
}

// switchStorage makes a version the one in which objects are stored, and waits until that holds.
func (s *server) switchStorage(w *conversionWebhook, version string) {
	s.t.Helper()
	s.send("PATCH", definitions+"/spots.example.com", endpointsDefinition(w.spec(), version), "Content-Type", "application/merge-patch+json").ok()
	s.eventually("stored as "+version, func() bool {
		made := into[metav1.PartialObjectMetadata](s.send("POST", strings.Replace(spotsV1, "v1", version, 1), object{"apiVersion": "example.com/" + version, "kind": "Spot", "metadata": object{"generateName": "probe-"}}).ok())
		defer s.send("DELETE", spotsV1+"/"+made.Name, nil)
		return s.stored(made.Name)["apiVersion"] == "example.com/"+version
	})
}

// stored returns an object as it is in the store.
func (s *server) stored(name string) (found object) {
	s.t.Helper()
	kv, _, err := s.store.Get(s.t.Context(), "/registry/example.com/spots/default/"+name)
	if err == nil {
		err = json.Unmarshal(kv.Value, &found)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// where returns the spec of an answered object as text.
func where(a answer) string {
	a.t.Helper()
	o := *into[object](a.ok())
	return fmt.Sprint(o["apiVersion"], o["spec"])
}

// TestConversion takes objects through the verbs in both versions, of which one is stored.
func TestConversion(t *testing.T) {
	s, w := start(t), newConversionWebhook(t)
	s.define(endpointsDefinition(w.spec(), "v1"))
	const v1, v2 = "example.com/v1map[hostPort:h:1]", "example.com/v2map[host:h port:1]"
	if got := where(s.send("POST", spotsV2, spotV2("a", "h", "1"))); got != v2 {
		t.Errorf("created %s", got)
	}
	if stored := s.stored("a"); stored["apiVersion"] != "example.com/v1" || stored["spec"].(object)["hostPort"] != "h:1" {
		t.Errorf("stored %v", stored)
	}
	s.send("POST", spotsV1, spotV1("b", "h:1")).ok()
	for _, name := range []string{"a", "b"} {
		if got := where(s.send("GET", spotsV1+"/"+name, nil)); got != v1 {
			t.Errorf("%s in v1: %s", name, got)
		}
		if got := where(s.send("GET", spotsV2+"/"+name, nil)); got != v2 {
			t.Errorf("%s in v2: %s", name, got)
		}
	}
	calls := w.calls.Load()
	list := into[struct{ Items []object }](s.send("GET", spotsV2, nil).ok())
	if len(list.Items) != 2 || fmt.Sprint(list.Items[1]["spec"]) != "map[host:h port:1]" || w.calls.Load() != calls {
		t.Errorf("listed %v with %d calls", list.Items, w.calls.Load()-calls)
	}
	if got := where(s.send("PATCH", spotsV2+"/a", `{"spec":{"port":"2"}}`, "Content-Type", "application/merge-patch+json")); got != "example.com/v2map[host:h port:2]" {
		t.Errorf("patched %s", got)
	}
	if got := where(s.send("GET", spotsV1+"/a", nil)); got != "example.com/v1map[hostPort:h:2]" {
		t.Errorf("after the patch %s", got)
	}
	table := into[metav1.Table](s.send("GET", spotsV2, nil, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").ok())
	if len(table.Rows) != 2 || fmt.Sprint(table.Rows[0].Cells) != "[a h]" {
		t.Errorf("table %+v", table.Rows)
	}
	s.send("DELETE", spotsV2+"/a", nil).ok()
	s.send("GET", spotsV1+"/a", nil).refused(404, metav1.StatusReasonNotFound)
}

// TestStorageSwitch changes the version in which objects are stored: what is stored stays readable in both versions, and is rewritten by the next update,
// also by one that changes nothing.
func TestStorageSwitch(t *testing.T) {
	s, w := start(t), newConversionWebhook(t)
	s.define(endpointsDefinition(w.spec(), "v1"))
	made := into[object](s.send("POST", spotsV1, spotV1("a", "h:1")).ok())
	s.switchStorage(w, "v2")
	check := func(stored string) {
		t.Helper()
		if got := s.stored("a")["apiVersion"]; got != stored {
			t.Errorf("stored in %v, not in %s", got, stored)
		}
		if got := where(s.send("GET", spotsV1+"/a", nil)); got != "example.com/v1map[hostPort:h:1]" {
			t.Errorf("in v1: %s", got)
		}
		if got := where(s.send("GET", spotsV2+"/a", nil)); got != "example.com/v2map[host:h port:1]" {
			t.Errorf("in v2: %s", got)
		}
	}
	check("example.com/v1")
	s.send("PUT", spotsV1+"/a", *made).ok()
	check("example.com/v2")
	crd := into[struct {
		Status struct{ StoredVersions []string }
	}](s.send("GET", definitions+"/spots.example.com", nil).ok())
	if got := fmt.Sprint(crd.Status.StoredVersions); got != "[v1 v2]" {
		t.Errorf("storedVersions %s", got)
	}
}
