package identity_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/cluster"
)

// TestNobody: a request without credentials is of user system:anonymous, which may only read health and version.
func TestNobody(t *testing.T) {
	t.Parallel()
	var seen requestRecorder
	dir := startCluster(t, func(c *cluster.Config) { c.Seen = seen.saw })
	admin := configOf(t, dir, "admin")
	nobody := withToken(admin, "")
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/version", "/version/"} { // as system:public-info-viewer says
		if err := try(t, nobody, "GET "+path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	closed := []string{
		"GET /", "GET /api", "GET /apis", "GET /api/v1", "GET /openapi/v2", "GET /openapi/v3", "GET /metrics", "GET /livez/ping", "GET /debug/pprof/",
		"GET /.well-known/openid-configuration", "GET /openid/v1/jwks", "GET /not/there",
		"POST /apis/authentication.k8s.io/v1/selfsubjectreviews", "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		"POST /apis/authorization.k8s.io/v1/selfsubjectrulesreviews", "POST /apis/authentication.k8s.io/v1/tokenreviews",
	}
	lists, err := clientOf(t, admin).Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		root := "/apis/" + list.GroupVersion
		if list.GroupVersion == "v1" {
			root = "/api/v1"
		}
		for _, r := range list.APIResources {
			closed = append(closed, "GET "+root+"/"+r.Name, "POST "+root+"/namespaces/default/"+r.Name)
		}
	}
	for _, request := range closed {
		if err := try(t, nobody, request); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "system:anonymous" cannot`) {
			t.Errorf("%s: %v", request, err)
		}
	}
	if users := seen.users(); len(users) != 2 || !slices.Equal(users["system:anonymous"], []string{"system:unauthenticated"}) {
		t.Errorf("asked: %v", users)
	}
	t.Logf("%d requests refused", len(closed))
}

// TestWrongCredentials: a request with an invalid credential gets 401, also for paths that anonymous users may read.
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	dir := startCluster(t, nil)
	admin := configOf(t, dir, "admin")
	ca := clusterCA(t, dir, "ca")
	frontProxy := clusterCA(t, dir, "front-proxy-ca").certify("front-proxy-client", time.Hour)
	proxied := []string{"X-Remote-User", "kubernetes-admin", "X-Remote-Group", masters}
	unsigned := encode(t, map[string]any{"alg": "none"}) + "." + encode(t, map[string]any{"iss": issuer}) + "."
	pair := func(c tls.Certificate) *tls.Certificate { return &c }
	for _, c := range []struct {
		name        string
		certificate *tls.Certificate
		header      []string
		want        int
		user        string // the user that the refusal names
	}{
		{"a guessed token", nil, []string{"Authorization", "Bearer guessed"}, 401, ""},
		{"an empty token", nil, []string{"Authorization", "Bearer "}, 403, "system:anonymous"},
		{"a name and password", nil, []string{"Authorization", "Basic YWRtaW46YWRtaW4="}, 403, "system:anonymous"},
		{"a bootstrap token", nil, []string{"Authorization", "Bearer abcdef.0123456789abcdef"}, 401, ""},
		{"a token without signature", nil, []string{"Authorization", "Bearer " + unsigned}, 401, ""},
		{"another authority's certificate", pair(ca.impostor().certify("kubernetes-admin", time.Hour, masters)), nil, 401, ""},
		{"a certificate that has ended", pair(ca.certify("kubernetes-admin", -time.Minute, masters)), nil, 401, ""},
		{"a front proxy's certificate without a user", &frontProxy, nil, 401, ""},
		{"a front proxy of the wrong authority", pair(ca.certify("front-proxy-client", time.Hour)), proxied, 403, "front-proxy-client"},
		{"another front proxy", pair(clusterCA(t, dir, "front-proxy-ca").certify("other", time.Hour)), proxied, 401, ""},
		{"a front proxy's headers alone", nil, proxied, 403, "system:anonymous"},
		{"impersonation by nobody", nil, []string{"Impersonate-User", "kubernetes-admin", "Impersonate-Group", masters}, 403, "system:anonymous"},
		{"a good certificate and a bad token", pair(ca.certify("kubernetes-admin", time.Hour, masters)), []string{"Authorization", "Bearer guessed"}, 200, ""},
		{"a front proxy", &frontProxy, proxied, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := showing(t, admin, c.certificate)
			for _, path := range []string{"/api/v1/pods", "/healthz"} {
				if path == "/healthz" && c.want != 401 {
					continue
				}
				code, status := get(t, client, admin.Host+path, c.header...)
				if code != c.want {
					t.Errorf("%s: %d %+v", path, code, status)
				}
				switch code {
				case 401:
					want := metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure",
						Message: "Unauthorized", Reason: "Unauthorized", Code: 401}
					if fmt.Sprint(status) != fmt.Sprint(want) {
						t.Errorf("%s: %+v", path, status)
					}
				case 403:
					if !strings.Contains(status.Message, fmt.Sprintf("User %q cannot ", c.user)) {
						t.Errorf("%s: %+v", path, status)
					}
				}
			}
		})
	}
}

func get(t *testing.T, client *http.Client, url string, header ...string) (int, metav1.Status) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var status metav1.Status
	if answer.StatusCode >= 400 {
		if err := json.Unmarshal(body, &status); err != nil {
			t.Errorf("%d %s: %v", answer.StatusCode, body, err)
		}
	}
	return answer.StatusCode, status
}
