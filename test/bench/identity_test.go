package bench

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/admission/plugins"
	"skiff/internal/apiserver/authn"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/authz"
	authzconfig "skiff/internal/apiserver/authz/config"
	"skiff/internal/apiserver/codec"
	"skiff/internal/store/memory"
)

// BenchmarkIdentity creates objects on a server without authentication and authorization that only checks namespaces, and on one as clusters have it:
// a service account authenticates with its token, is authorized by a role of its namespace, and all default admission plugins run.
// The difference is what identity costs.
func BenchmarkIdentity(b *testing.B) {
	for _, kind := range []struct {
		name, path string
		object     func(name string) []byte
	}{{"pod", pods, pod}, {"configmap", configMaps, configMap}} {
		for _, server := range []struct {
			name  string
			start func(*testing.B) (*apiserver.Server, func(*http.Request) *http.Request)
		}{{"without", startOpen}, {"with", startClosed}} {
			b.Run(kind.name+"/"+server.name, func(b *testing.B) {
				s, sign := server.start(b)
				n := 0
				b.ReportAllocs()
				for b.Loop() {
					n++
					post(b, s, sign, kind.path, kind.object(fmt.Sprintf("o-%d", n)))
				}
			})
		}
	}
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func configMap(name string) []byte {
	message, err := (&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "bench"}},
		Data: map[string]string{"settings": "a: 1\nb: 2\nc: 3\n"}}).Marshal()
	if err != nil {
		panic(err)
	}
	return codec.AppendEnvelope(nil, codec.EnvelopeHead(corev1.SchemeGroupVersion.WithKind("ConfigMap")), message)
}

func post(b *testing.B, server *apiserver.Server, sign func(*http.Request) *http.Request, path string, body []byte) []byte {
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	r.Header.Set("Accept", protobuf)
	r.Header.Set("Content-Type", protobuf)
	r.Header.Set("User-Agent", "bench/1.0")
	w := httptest.NewRecorder()
	server.ServeHTTP(w, sign(r))
	if w.Code >= 300 {
		b.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.Bytes()
}

func asAdmin(r *http.Request) *http.Request {
	return r.WithContext(authn.InProcess(r.Context(), authn.Admin()))
}

func startWith(b *testing.B, o apiserver.Options) *apiserver.Server {
	store := memory.New(memory.Options{})
	o.Store = store
	server, err := apiserver.New(o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { server.Close(); store.Close() })
	if err := server.WaitReady(context.Background()); err != nil {
		b.Fatal(err)
	}
	return server
}

func startOpen(b *testing.B) (*apiserver.Server, func(*http.Request) *http.Request) {
	off := slices.DeleteFunc(plugins.On(), func(name string) bool { return name == "NamespaceLifecycle" })
	return startWith(b, apiserver.Options{Authorization: authzconfig.Options{Modes: []string{authz.ModeAlwaysAllow}}, DisableAdmission: off}), asAdmin
}

func startClosed(b *testing.B) (*apiserver.Server, func(*http.Request) *http.Request) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	authentication := authnconfig.Default()
	authentication.ServiceAccountIssuers, authentication.ServiceAccountSigningKey = []string{"https://bench"}, key
	authentication.ExternalAddress = "bench:443"
	server := startWith(b, apiserver.Options{Authentication: authentication, Authorization: authzconfig.Options{Modes: []string{authz.ModeNode, authz.ModeRBAC}}, AggregateRoles: true,
		EnableAdmission: []string{"NodeRestriction"}})
	make := func(path string, obj any) []byte {
		body, err := json.Marshal(obj)
		if err != nil {
			b.Fatal(err)
		}
		return post(b, server, func(r *http.Request) *http.Request {
			r.Header.Set("Content-Type", codec.JSONType)
			r.Header.Set("Accept", codec.JSONType)
			return asAdmin(r)
		}, path, body)
	}
	const accounts = "/api/v1/namespaces/default/serviceaccounts"
	for _, name := range []string{"default", "writer"} {
		make(accounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	make("/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "writer"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "writer", Namespace: "default"}}})
	var answer authenticationv1.TokenRequest
	if err := json.Unmarshal(make(accounts+"/writer/token", &authenticationv1.TokenRequest{}), &answer); err != nil {
		b.Fatal(err)
	}
	bearer := []string{"Bearer " + answer.Status.Token}
	sign := func(r *http.Request) *http.Request {
		r.Header["Authorization"] = bearer
		return r
	}
	awaitRole(b, server, sign)
	return server, sign
}

// awaitRole waits until the authorizer has observed the role, which takes a moment after the write.
func awaitRole(b *testing.B, server *apiserver.Server, sign func(*http.Request) *http.Request) {
	for range 1000 {
		w := httptest.NewRecorder()
		server.ServeHTTP(w, sign(httptest.NewRequest(http.MethodGet, configMaps, nil)))
		if w.Code == http.StatusOK {
			return
		}
	}
	b.Fatal("the role is not heeded")
}
