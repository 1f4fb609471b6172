//go:build linux

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// rawAPI sends requests as they are, over HTTPS. Nothing is repeated, so that a test sees each answer.
type rawAPI struct {
	base string
	http *http.Client
}

// raw returns a client with a connection of its own, which also works after the server was restarted.
func (s *server) raw() *rawAPI {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig())
	if err != nil {
		s.t.Fatal(err)
	}
	config.UserAgent = fmt.Sprintf("chaos/%d", os.Getpid())
	config.Dial = (&net.Dialer{}).DialContext // of its own: else client-go shares connections between clients
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.CloseIdleConnections)
	return &rawAPI{base: config.Host, http: client}
}

// answer is what the server said to a request.
type answer struct {
	code   int
	body   []byte
	header http.Header
	err    error // of the connection: whether the request was carried out is not known
}

// send sends a request whose body is JSON, a merge patch if it is a PATCH. Headers come in pairs.
func (a *rawAPI) send(ctx context.Context, method, path string, body any, headers ...string) answer {
	var data []byte
	switch b := body.(type) {
	case nil:
	case []byte:
		data = b
	case string:
		data = []byte(b)
	default:
		var err error
		if data, err = json.Marshal(b); err != nil {
			return answer{err: err}
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(data))
	if err != nil {
		return answer{err: err}
	}
	if len(data) > 0 {
		r.Header.Set("Content-Type", "application/json")
		if method == http.MethodPatch {
			r.Header.Set("Content-Type", "application/merge-patch+json")
		}
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := a.http.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	return answer{code: response.StatusCode, body: all, header: response.Header, err: err}
}

// call is send with a deadline that a request reaches only if the server hangs.
func (a *rawAPI) call(method, path string, body any, headers ...string) answer {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return a.send(ctx, method, path, body, headers...)
}

// must is call for a request that has to succeed.
func (a *rawAPI) must(t *testing.T, method, path string, body any, headers ...string) answer {
	t.Helper()
	got := a.call(method, path, body, headers...)
	if !got.ok() {
		t.Fatalf("%s %s: %v", method, path, got)
	}
	return got
}

func (a answer) ok() bool { return a.err == nil && a.code >= 200 && a.code < 300 }

// status returns the Status in an answer that is a failure.
func (a answer) status() metav1.Status {
	var status metav1.Status
	_ = json.Unmarshal(a.body, &status) // what is no Status has no reason
	return status
}

// decode decodes the object in an answer.
func (a answer) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal(a.body, into); err != nil {
		t.Fatalf("%v: %v", a, err)
	}
}

func (a answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d %.500s", a.code, a.body)
}

// until waits until a condition holds, which returns what is missing.
func until(t *testing.T, what string, missing func() string) {
	t.Helper()
	for deadline := time.Now().Add(settleTimeout); ; time.Sleep(5 * time.Millisecond) {
		is := missing()
		if is == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s: %s", settleTimeout, what, is)
		}
	}
}
