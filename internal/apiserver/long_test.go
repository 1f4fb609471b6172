package apiserver_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn"
	"skiff/internal/client"
	"skiff/internal/store/etcd"
)

const longEvents = 700

// startWithEvents starts a server with more Events than it holds in memory to answer a list.
func startWithEvents(t *testing.T) *server {
	t.Helper()
	s := start(t)
	for i := range longEvents {
		s.send("POST", "/api/v1/namespaces/default/events", object{
			"metadata":       object{"name": fmt.Sprintf("e%04d", i), "labels": object{"third": strconv.Itoa(i % 3)}, "annotations": object{"pad": strings.Repeat("p", 5000)}},
			"involvedObject": object{"kind": "Pod", "namespace": "default", "name": fmt.Sprintf("web-%d", i%7)}, "reason": "Started", "type": "Normal", "message": "<started>",
			"firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z", "count": i}).ok()
	}
	return s
}

// TestLongLists compares lists that are sent while they are read from the store with the same in short pages, in all encodings.
func TestLongLists(t *testing.T) {
	s := startWithEvents(t)
	const asList, asTable = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", ";as=Table;g=meta.k8s.io;v=v1"
	for _, path := range []string{"/api/v1/namespaces/default/events", "/api/v1/events", "/apis/events.k8s.io/v1/events"} {
		for _, accept := range []string{"application/json", "application/json" + asTable, "application/json" + asList, protobuf, protobuf + asList, "application/yaml"} {
			for _, query := range []string{"", "labelSelector=third%3D1", "limit=690", "limit=690&labelSelector=third+in+(0,1,2)", "labelSelector=third%21%3D1&limit=400"} {
				if query != "" && (accept == "application/yaml" || path == "/api/v1/events") {
					continue // each way is gone once
				}
				t.Run(path+" "+accept+" "+query, func(t *testing.T) {
					long := s.pages(t, path, query, accept)
					values, err := url.ParseQuery(query)
					if err != nil {
						t.Fatal(err)
					}
					values.Set("limit", "150")
					short := s.pages(t, path, values.Encode(), accept)
					if long.revision != short.revision || len(long.items) != len(short.items) {
						t.Fatalf("%d items at %s, in pages %d at %s", len(long.items), long.revision, len(short.items), short.revision)
					}
					for i := range long.items {
						if long.items[i] != short.items[i] {
							t.Fatalf("item %d is %s, in pages %s", i, long.items[i], short.items[i])
						}
					}
					if strings.Contains(query, "limit=690") && (long.pages != 2 || query == "limit=690" && long.remaining != longEvents-690) {
						t.Errorf("%d pages, %d remain after the first", long.pages, long.remaining)
					}
				})
			}
		}
	}
}

type longList struct {
	items     []string
	revision  string
	pages     int
	remaining int64 // after the first page
}

// pages reads a list until there is no continue token, decoding each item by itself.
func (s *server) pages(t *testing.T, path, query, accept string) (out longList) {
	t.Helper()
	next := ""
	for {
		url := path + "?" + query
		if next != "" {
			url += "&continue=" + next
		}
		a := s.send("GET", url, nil, "Accept", accept, "Accept-Encoding", "gzip").ok()
		if length := a.Header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(a.Body)) {
			t.Fatalf("%s bytes were told of, %d came", length, len(a.Body))
		}
		if a.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(bytes.NewReader(a.Body))
			if err != nil {
				t.Fatal(err)
			}
			if a.Body, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		meta := out.add(t, a.Body, path, accept)
		if out.revision == "" {
			out.revision = meta.ResourceVersion
		}
		if out.pages++; out.pages == 1 && meta.RemainingItemCount != nil {
			out.remaining = *meta.RemainingItemCount
		}
		if next = meta.Continue; next == "" {
			return out
		}
	}
}

func (l *longList) add(t *testing.T, body []byte, path, accept string) metav1.ListMeta {
	t.Helper()
	if strings.HasPrefix(accept, protobuf) {
		var envelope kruntime.Unknown
		if err := envelope.Unmarshal(body[4:]); err != nil {
			t.Fatal(err)
		}
		return l.addMessages(t, envelope.Raw, path, accept)
	}
	if accept == "application/yaml" { // compared as text
		text := string(body)
		items := strings.Split(text[strings.Index(text, "items:\n"):strings.Index(text, "\nkind: EventList")], "\n- ")[1:]
		l.items = append(l.items, items...)
		meta := metav1.ListMeta{}
		for _, line := range strings.Split(text[strings.Index(text, "\nkind: EventList"):], "\n") {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch value = strings.Trim(value, `"`); key {
			case "continue":
				meta.Continue = value
			case "resourceVersion":
				meta.ResourceVersion = value
			case "remainingItemCount":
				n, err := strconv.ParseInt(value, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				meta.RemainingItemCount = &n
			}
		}
		return meta
	}
	var list struct {
		Metadata    metav1.ListMeta
		Items, Rows []json.RawMessage
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		l.items = append(l.items, string(item))
	}
	for _, row := range list.Rows {
		text := string(row)
		l.items = append(l.items, text[strings.Index(text, ","):]) // the first cell is an age
	}
	return list.Metadata
}

func (l *longList) addMessages(t *testing.T, raw []byte, path, accept string) metav1.ListMeta {
	t.Helper()
	var meta metav1.ListMeta
	var err error
	show := func(m interface{ Marshal() ([]byte, error) }) {
		b, err := m.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		l.items = append(l.items, string(b))
	}
	switch {
	case accept != protobuf:
		var list metav1.PartialObjectMetadataList
		err = list.Unmarshal(raw)
		meta = list.ListMeta
		for i := range list.Items {
			show(&list.Items[i])
		}
	case strings.HasPrefix(path, "/apis"):
		var list eventsv1.EventList
		err = list.Unmarshal(raw)
		meta = list.ListMeta
		for i := range list.Items {
			show(&list.Items[i])
		}
	default:
		var list corev1.EventList
		err = list.Unmarshal(raw)
		meta = list.ListMeta
		for i := range list.Items {
			show(&list.Items[i])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return meta
}

// untilSeen records an answer and says when a text has come.
type untilSeen struct {
	*httptest.ResponseRecorder
	look  string
	found func()
}

func (u *untilSeen) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(u.look)) {
		defer u.found()
	}
	return u.ResponseRecorder.Write(p)
}

// A long list is also what a watch begins with, what a component of this process reads, and what a collection is that is deleted.
func TestLongWatchAndDelete(t *testing.T) {
	s := startWithEvents(t)
	const path = "/api/v1/namespaces/default/events"
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	watched := &untilSeen{ResponseRecorder: httptest.NewRecorder(), look: metav1.InitialEventsAnnotationKey, found: cancel}
	s.ServeHTTP(watched, httptest.NewRequestWithContext(ctx, "GET", path+"?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", nil))
	body := watched.Body.Bytes()
	if added, marks := bytes.Count(body, []byte(`{"type":"ADDED"`)), bytes.Count(body, []byte(metav1.InitialEventsAnnotationKey)); added != longEvents || marks != 1 {
		t.Errorf("the watch began with %d Events and %d bookmarks", added, marks)
	}
	what := client.Shared{Resource: schema.GroupVersionResource{Version: "v1", Resource: "events"}}
	objects, _, err := s.api.As(authn.Admin()).List(t.Context(), what, metav1.ListOptions{})
	if err != nil || len(objects) != longEvents || objects[5].(*corev1.Event).Count != 5 {
		t.Errorf("listed %d in process, %v", len(objects), err)
	}
	shared, err := s.api.As(authn.Admin()).Watch(t.Context(), what, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range longEvents {
		if e := (<-shared.ResultChan()).Object.(*corev1.Event); int(e.Count) != i {
			t.Fatalf("event %d in process is %s", i, e.Name)
		}
	}
	shared.Stop()
	deleted := into[corev1.EventList](s.send("DELETE", path+"?labelSelector=third%3D1", nil).ok())
	if len(deleted.Items) != 233 {
		t.Errorf("deleted %d", len(deleted.Items))
	}
	if rest := into[corev1.EventList](s.send("GET", path, nil).ok()); len(rest.Items) != longEvents-233 {
		t.Errorf("%d are left", len(rest.Items))
	}
	if deleted := into[corev1.EventList](s.send("DELETE", path, nil).ok()); len(deleted.Items) != longEvents-233 {
		t.Errorf("deleted %d of the rest", len(deleted.Items))
	}
	if rest := into[corev1.EventList](s.send("GET", path, nil).ok()); len(rest.Items) != 0 {
		t.Errorf("%d are left in the end", len(rest.Items))
	}
}

// Events cost what etcd's index of keys and its leases take, whatever they say.
func TestEventsMemory(t *testing.T) {
	const events, most = 20000, 900 // bytes of the heap for each: 3,100 if they were cached
	const alone = "SKIFF_TEST_EVENTS_MEMORY"
	if os.Getenv(alone) == "" { // other tests leave garbage on the heap of this process
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		again := exec.CommandContext(t.Context(), program, "-test.run=^TestEventsMemory$", "-test.v")
		again.Env = append(os.Environ(), alone+"=yes")
		out, err := again.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	database, err := etcd.Embed(t.Context(), etcd.EmbedOptions{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *apiserver.Options) { o.Store = database })
	heap := func() int64 {
		var m runtime.MemStats
		for range 3 { // pools give back what they have in the second
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	create := func(from, n int) {
		work := make(chan int)
		var working sync.WaitGroup
		for range 16 {
			working.Go(func() {
				for i := range work {
					pod := fmt.Sprintf("web-7d4b9c6f5-%05d", i)
					if a := s.send("POST", "/api/v1/namespaces/default/events", object{
						"metadata":       object{"name": fmt.Sprintf("%s.18320a%010x", pod, i)},
						"involvedObject": object{"kind": "Pod", "namespace": "default", "name": pod, "uid": fmt.Sprintf("6f1c9c52-8c5e-4d1c-9d59-%012x", i), "resourceVersion": "1000", "fieldPath": "spec.containers{web}"},
						"reason":         "Pulled", "type": "Normal", "source": object{"component": "kubelet", "host": "node-17.cluster.example"}, "count": 1,
						"message":        `Successfully pulled image "registry.example/shop/web:1.27.3" in 1.204s (1.204s including waiting). Image size: 71004338 bytes.`,
						"firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z", "reportingComponent": "kubelet", "reportingInstance": "node-17.cluster.example"},
						"User-Agent", "kubelet/v1.37.1"); a.Code != 201 {
						t.Errorf("answered %d: %s", a.Code, a.Body)
					}
				}
			})
		}
		for i := range n {
			work <- from + i
		}
		close(work)
		working.Wait()
	}
	create(0, 2500) // more than the ring of changes holds
	before := heap()
	create(2500, events)
	if each := (heap() - before) / events; each > most {
		t.Errorf("an Event takes %d bytes of the heap, more than %d", each, most)
	} else {
		t.Logf("an Event takes %d bytes of the heap", each)
	}
}
