package cluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A connection that ends does not end a component; that it may not is said at once.
func TestEnsureAccount(t *testing.T) {
	asked := 0
	var answer func(w http.ResponseWriter)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		answer(w)
	}))
	defer server.Close()
	api, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	say := func(w http.ResponseWriter, code int, text string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, text)
	}
	answer = func(w http.ResponseWriter) {
		if asked < 3 {
			panic(http.ErrAbortHandler)
		}
		say(w, http.StatusCreated, `{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"loop"}}`)
	}
	if err := ensureAccount(t.Context(), api, "loop"); err != nil || asked != 3 {
		t.Errorf("after %d requests: %v", asked, err)
	}
	asked = 0
	answer = func(w http.ResponseWriter) {
		say(w, http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	}
	if err := ensureAccount(t.Context(), api, "loop"); !apierrors.IsForbidden(err) || asked != 1 {
		t.Errorf("after %d requests: %v", asked, err)
	}
}
