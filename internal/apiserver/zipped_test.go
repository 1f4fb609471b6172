package apiserver_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// Large lists are compressed once for all who ask at the same revision; the first on this machine gets it plain, as that is cheaper.
func TestZippedLists(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := settled(t)
		for i := range 4 {
			s.send("POST", inNamespace("configmaps"), configMap(fmt.Sprintf("large%d", i), "k", strings.Repeat("x", 100<<10))).ok()
		}
		list := func(query string, headers ...string) (body []byte, zipped bool) {
			t.Helper()
			r := s.send("GET", inNamespace("configmaps")+query, nil, headers...).ok()
			if r.Header.Get("Content-Encoding") != "gzip" {
				return r.Body, false
			}
			z, err := gzip.NewReader(bytes.NewReader(r.Body))
			if err != nil {
				t.Fatal(err)
			}
			plain, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			return plain, true
		}
		zip := []string{"Accept-Encoding", "gzip"}
		want, zipped := list("")
		if zipped || len(want) < 400<<10 {
			t.Fatal(len(want), zipped)
		}
		for i := range 3 {
			got, zipped := list("", zip...)
			if zipped != (i > 0) || !bytes.Equal(got, want) {
				t.Errorf("request %d: compressed %v, the same %v", i, zipped, bytes.Equal(got, want))
			}
		}
		if _, zipped := list(""); zipped {
			t.Error("compressed for a client that did not ask")
		}
		if _, zipped := list("?limit=500", zip...); zipped {
			t.Error("pages are not for all")
		}
		protobufs, _ := list("", append(zip, "Accept", protobuf)...)
		if again, zipped := list("", append(zip, "Accept", protobuf)...); !zipped || !bytes.Equal(again, protobufs) || bytes.Equal(again, want) {
			t.Error("protobuf and JSON are not the same list")
		}
		s.send("POST", inNamespace("configmaps"), configMap("another", "k", "v")).ok()
		list("", zip...)
		if changed, zipped := list("", zip...); !zipped || !bytes.Contains(changed, []byte("another")) {
			t.Error("an old list was served")
		}
		time.Sleep(time.Minute) // nothing is kept
		if _, zipped := list("", zip...); zipped {
			t.Error("a list was kept for a minute")
		}
	})
}
