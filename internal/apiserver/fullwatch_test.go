package apiserver_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	gomaps "maps"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// watches changes and deletes the object under the eyes of watchers.
func (f *objectTest) watches(t *testing.T) {
	const table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	watchers := map[string]func() (string, object){}
	for _, accept := range []string{encodings[0], protobuf} {
		watchers["in "+accept] = f.open(t, accept)
	}
	rows := f.open(t, table)
	watchers["of a table"] = func() (string, object) {
		kind, got := rows()
		return kind, got["rows"].([]any)[0].(object)["object"].(object)
	}
	told := func(kind string) {
		t.Helper()
		for name, next := range watchers {
			gotKind, got := next()
			f.equal(t, "watch "+name+" of "+kind, got, f.got)
			if gotKind != kind {
				t.Errorf("watch %s: %s, want %s", name, gotKind, kind)
			}
		}
	}
	told("ADDED")
	f.got = f.decode(t, protobuf, f.patch(object{"metadata": object{"labels": object{"more": "yes"}}}, protobuf))
	told("MODIFIED")
	f.got = f.decode(t, yamlType, f.send("DELETE", f.path(), object{"gracePeriodSeconds": 0}, "Accept", yamlType).ok().Body)
	if metadata(f.got)["deletionTimestamp"] == nil {
		t.Fatalf("deleted despite its finalizers: %v", f.got)
	}
	if f.info.GVK.Kind == "Namespace" {
		told("MODIFIED")
		empty := gomaps.Clone(f.got)
		empty["spec"] = object{}
		f.got = f.decode(t, encodings[0], f.send("PUT", f.path("finalize"), empty).ok().Body)
	}
	told("MODIFIED")
	before := f.revision()
	f.patch(object{"metadata": object{"finalizers": nil}}, encodings[0])
	metadata(f.got)["resourceVersion"] = fmt.Sprint(before + 1) // otherwise as it last was
	told("DELETED")
}

func (f *objectTest) patch(patch object, accept string) []byte {
	f.t.Helper()
	return f.send("PATCH", f.path(), patch, "Content-Type", "application/merge-patch+json", "Accept", accept).ok().Body
}

// open watches the object from its present state on, and returns a function that waits for the next event.
func (f *objectTest) open(t *testing.T, accept string) func() (kind string, got object) {
	t.Helper()
	path := collection(f.info) + "?watch=true&includeObject=Object&fieldSelector=metadata.name%3D" + f.name()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://skiff"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	response, err := f.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response, err)
	}
	t.Cleanup(func() { response.Body.Close() })
	frames := framesOf(accept, response.Body)
	return func() (string, object) {
		t.Helper()
		frame, err := frames()
		if err != nil {
			t.Fatal(err)
		}
		var event metav1.WatchEvent
		if accept == protobuf {
			err = event.Unmarshal(frame)
		} else {
			err = json.Unmarshal(frame, &event)
		}
		if err != nil {
			t.Fatal(err)
		}
		return event.Type, f.decode(t, accept, event.Object.Raw)
	}
}

// framesOf cuts a stream of events into its parts.
func framesOf(accept string, body io.ReadCloser) func() ([]byte, error) {
	if accept != protobuf {
		lines := bufio.NewReader(body)
		return func() ([]byte, error) { return lines.ReadBytes('\n') }
	}
	frames := protobufserializer.LengthDelimitedFramer.NewFrameReader(body)
	return func() (frame []byte, err error) {
		for buf := make([]byte, 64<<10); ; {
			n, err := frames.Read(buf)
			frame = append(frame, buf[:n]...)
			if !errors.Is(err, io.ErrShortBuffer) {
				return frame, err
			}
		}
	}
}
