package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// boxes returns a definition in the group example.com with a schema.
func boxes(schema string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"boxes.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"boxes","kind":"Box"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` + schema + `}}]}}`
}

const boxesPath = "/apis/example.com/v1/namespaces/default/boxes"

func box(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Box","metadata":{"name":%q},"spec":%s}`, name, spec)
}

// TestRuleCosts: a rule that might cost too much is refused with its definition, and one that does cost too much with the object.
func TestRuleCosts(t *testing.T) {
	const all = "self.list.all(x, self.list.all(y, x != y || x == y))"
	schema := func(bounds string) string {
		return boxes(`{"type":"object","properties":{"spec":{"type":"object","properties":{"list":{"type":"array",` + bounds + `"items":{"type":"integer"}}},"x-kubernetes-validations":[{"rule":"` + all + `"}]}}}`)
	}
	s := start(t)
	status := s.send("POST", definitions, schema("")).refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	const estimate = "estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
	if !strings.Contains(status.Message, estimate) {
		t.Errorf("refused with %s", status.Message)
	}
	s.define(schema(`"maxItems":1000,`))
	s.send("POST", boxesPath, box("few", "{\"list\":[1,2,3]}")).ok()
	began := time.Now()
	status = s.send("POST", boxesPath, box("many", "{\"list\":["+strings.Repeat("1,", 999)+"1]}")).refused(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	if want := "no further validation rules will be run due to call cost exceeds limit for rule: " + all; !strings.Contains(status.Message, want) {
		t.Errorf("refused with %s", status.Message)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("refused after %v", took)
	}
}

// TestLargeSchemas: a schema of a megabyte and one of great depth are served, and what is larger or deeper is refused as a client's error.
func TestLargeSchemas(t *testing.T) {
	s := start(t)
	var wide strings.Builder
	for i := range 9000 {
		fmt.Fprintf(&wide, `"field%d":{"type":"object","description":%q,"properties":{"a":{"type":"string","maxLength":10,"default":"x"}}},`, i, strings.Repeat("d", 30))
	}
	const levels = 300
	deep := func(levels int) string {
		return strings.Repeat(`{"type":"object","properties":{"a":`, levels) + `{"type":"string"}` + strings.Repeat("}}", levels)
	}
	nested := func(levels int) string { return strings.Repeat(`{"a":`, levels) + `"x"` + strings.Repeat("}", levels) }
	for _, c := range []struct{ name, schema, spec string }{
		{"wide", `{"type":"object","properties":{"spec":{"type":"object","properties":{` + wide.String() + `"last":{"type":"string"}}}}}`, `{"field1":{},"field8999":{"a":"y"},"last":"z","unknown":1}`},
		{"deep", `{"type":"object","properties":{"spec":` + deep(levels) + `}}`, nested(levels)},
		{"anything", `{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`, nested(2000)},
	} {
		text := boxes(c.schema)
		began := time.Now()
		s.define(text)
		s.send("POST", boxesPath, box("a", c.spec)).ok()
		if got := *into[object](s.send("GET", boxesPath+"/a", nil).ok()); c.name == "wide" && fmt.Sprint(got["spec"]) != "map[field1:map[a:x] field8999:map[a:y] last:z]" {
			t.Errorf("the object is %v", got["spec"])
		}
		s.send("PATCH", boxesPath+"/a?fieldManager=m", box("a", c.spec), "Content-Type", "application/apply-patch+yaml", "Accept", "application/json")
		s.send("GET", "/apis/example.com/v1/boxes", nil).ok()
		s.send("GET", "/openapi/v3/apis/example.com/v1", nil).ok()
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("%s, of %d bytes, took %v", c.name, len(text), took)
		}
		s.send("DELETE", definitions+"/boxes.example.com", nil).ok()
		s.eventually("deleted", func() bool { return s.send("GET", definitions+"/boxes.example.com", nil).Code == http.StatusNotFound })
	}
	large := boxes(`{"type":"object","description":"` + strings.Repeat("d", 3<<20) + `"}`)
	s.send("POST", definitions, large).refused(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge)
	s.send("POST", definitions, boxes(deep(6000))).refused(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	s.define(boxes(`{"type":"object","x-kubernetes-preserve-unknown-fields":true}`))
	s.send("POST", boxesPath, box("a", nested(10001))).refused(http.StatusBadRequest, metav1.StatusReasonBadRequest)
}

// TestConversionVanishes: while a conversion webhook comes and goes, each read has the object in the version that it asks for, or an error that names the
// webhook; nobody who reads the stored version notices; and nothing is left in the end.
func TestConversionVanishes(t *testing.T) {
	s, w := start(t), newConversionWebhook(t)
	before := runtime.NumGoroutine()
	s.define(endpointsDefinition(w.spec(), "v1"))
	const objects, readers = 10, 8
	for i := range objects {
		s.send("POST", spotsV1, spotV1(fmt.Sprint("a", i), "h:0")).ok()
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	var converted, refused atomic.Int64
	for n := range readers {
		running.Go(func() {
			for i := n; ctx.Err() == nil; i++ {
				name := fmt.Sprint("a", i%objects)
				if got := s.send("PATCH", spotsV1+"/"+name, fmt.Sprintf(`{"spec":{"hostPort":"h:%d"}}`, i), "Content-Type", "application/merge-patch+json"); got.Code != http.StatusOK {
					t.Errorf("a write in the stored version: %d %s", got.Code, got.Body)
				}
				for _, path := range []string{spotsV2 + "/" + name, spotsV2} {
					switch got := s.send("GET", path, nil); {
					case got.Code == http.StatusOK:
						converted.Add(1)
						if !strings.Contains(string(got.Body), `"host":"h"`) || strings.Contains(string(got.Body), "hostPort\":\"") {
							t.Errorf("read %s", got.Body)
						}
					case got.Code != http.StatusInternalServerError || !strings.HasPrefix(into[metav1.Status](got).Message, "conversion webhook for example.com/v1, Kind=Spot "):
						t.Errorf("read %d %s", got.Code, got.Body)
					default:
						refused.Add(1)
					}
				}
			}
		})
	}
	for range 10 {
		for _, down := range []bool{true, false} {
			converted.Store(0)
			refused.Store(0)
			if w.down.Store(down); down {
				w.CloseClientConnections()
			}
			s.eventually("noticed", func() bool { return down && refused.Load() > 0 || !down && converted.Load() > 0 })
		}
	}
	stop()
	running.Wait()
	for i := range objects {
		s.send("GET", fmt.Sprint(spotsV2, "/a", i), nil).ok()
	}
	s.send("DELETE", definitions+"/spots.example.com", nil).ok()
	s.eventually("deleted with its definition", func() bool { return s.send("GET", definitions+"/spots.example.com", nil).Code == http.StatusNotFound })
	s.eventually("as before", func() bool { return runtime.NumGoroutine() <= before+5 })
}

// TestHangingConversionsLeaveNothing: reads that a webhook holds up end with their clients, and nothing is left of them.
func TestHangingConversionsLeaveNothing(t *testing.T) {
	s, w := start(t), newConversionWebhook(t)
	before := runtime.NumGoroutine()
	s.define(endpointsDefinition(w.spec(), "v1"))
	s.send("POST", spotsV1, spotV1("a", "h:1")).ok()
	const reads = 100
	released, called := make(chan struct{}), make(chan struct{}, reads)
	w.answerWith(func(http.ResponseWriter, object) { called <- struct{}{}; <-released })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range reads {
		running.Go(func() { s.sendContext(ctx, "GET", spotsV2, nil) })
	}
	<-called
	cancel()
	running.Wait()
	close(released)
	w.answerWith(nil)
	s.send("GET", spotsV2+"/a", nil).ok()
	s.send("DELETE", definitions+"/spots.example.com", nil).ok()
	s.eventually("as before", func() bool { return runtime.NumGoroutine() <= before+5 })
}
