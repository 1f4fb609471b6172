package apiserver_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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
		dial := overNetwork(t, s)
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }, DisableCompression: true}
		defer transport.CloseIdleConnections()
		list := func(query string, headers ...string) (body []byte, compressed bool) {
			t.Helper()
			r, _ := http.NewRequest("GET", "http://skiff"+inNamespace("configmaps")+query, nil)
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			answer, err := transport.RoundTrip(r)
			if err != nil || answer.StatusCode != 200 {
				t.Fatal(answer, err)
			}
			defer answer.Body.Close()
			reader := io.Reader(answer.Body)
			if compressed = answer.Header.Get("Content-Encoding") == "gzip"; compressed {
				if reader, err = gzip.NewReader(reader); err != nil {
					t.Fatal(err)
				}
			}
			body, err = io.ReadAll(reader)
			if err != nil {
				t.Fatal(err)
			}
			return body, compressed
		}
		acceptGzip := []string{"Accept-Encoding", "gzip"}
		want, compressed := list("")
		if compressed || len(want) < 400<<10 {
			t.Fatal(len(want), compressed)
		}
		for i := range 3 {
			got, compressed := list("", acceptGzip...)
			if compressed != (i > 0) || !bytes.Equal(got, want) {
				t.Errorf("request %d: compressed %v, the same %v", i, compressed, bytes.Equal(got, want))
			}
		}
		if _, compressed := list(""); compressed {
			t.Error("compressed for a client that did not ask")
		}
		if _, compressed := list("?limit=500", acceptGzip...); compressed {
			t.Error("pages are not for all")
		}
		protobufs, _ := list("", append(acceptGzip, "Accept", protobuf)...)
		if again, compressed := list("", append(acceptGzip, "Accept", protobuf)...); !compressed || !bytes.Equal(again, protobufs) || bytes.Equal(again, want) {
			t.Error("protobuf and JSON are not the same list")
		}
		s.send("POST", inNamespace("configmaps"), configMap("another", "k", "v")).ok()
		list("", acceptGzip...)
		if changed, compressed := list("", acceptGzip...); !compressed || !bytes.Contains(changed, []byte("another")) {
			t.Error("an old list was served")
		}
		time.Sleep(time.Minute) // nothing is kept
		if _, compressed := list("", acceptGzip...); compressed {
			t.Error("a list was kept for a minute")
		}
	})
}
