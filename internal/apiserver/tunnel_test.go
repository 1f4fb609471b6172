package apiserver_test

import (
	"fmt"
	"net/http"
	"testing"

	"k8s.io/client-go/rest"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apitest"
)

// A tunnel is opened by the node that it leads to, and by nobody else, whatever they may.
func TestWhoOpensTunnels(t *testing.T) {
	server := apitest.Start(t, apitest.WithServer(func(o *apiserver.Options) {
		o.Tunnel = func(w http.ResponseWriter, _ *http.Request, node string) { fmt.Fprint(w, "tunnel of "+node) }
	}))
	node := func(name string) *rest.Config { return server.ConfigFor("system:node:"+name, authn.SystemNodes) }
	anonymous := rest.AnonymousClientConfig(server.Config())
	for what, c := range map[string]struct {
		who    *rest.Config
		method string
		path   string
		want   int
	}{
		"the node":               {node("one"), http.MethodGet, "/skiff/v1/tunnels/one", http.StatusOK},
		"another node":           {node("two"), http.MethodGet, "/skiff/v1/tunnels/one", http.StatusForbidden},
		"a node that says so":    {server.ConfigFor("system:node:one"), http.MethodGet, "/skiff/v1/tunnels/one", http.StatusForbidden},
		"the administrator":      {server.Config(), http.MethodGet, "/skiff/v1/tunnels/one", http.StatusForbidden},
		"somebody":               {server.ConfigFor("jane"), http.MethodGet, "/skiff/v1/tunnels/one", http.StatusForbidden},
		"nobody":                 {anonymous, http.MethodGet, "/skiff/v1/tunnels/one", http.StatusForbidden},
		"a node without a name":  {server.ConfigFor("system:node:", authn.SystemNodes), http.MethodGet, "/skiff/v1/tunnels/", http.StatusForbidden},
		"a path below":           {node("one"), http.MethodGet, "/skiff/v1/tunnels/one/more", http.StatusForbidden},
		"another method":         {node("one"), http.MethodPost, "/skiff/v1/tunnels/one", http.StatusForbidden},
		"a node that goes round": {node("two"), http.MethodGet, "/skiff/v1/tunnels/two/../one", http.StatusForbidden},
	} {
		client, err := rest.HTTPClientFor(c.who)
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), c.method, server.URL()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != c.want {
			t.Errorf("%s: %s", what, answer.Status)
		}
	}
}
