package authn_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authn/authntest"
	"skiff/internal/apiserver/authn/bearer"
	"skiff/internal/apiserver/authn/tokencache"
	"skiff/internal/apiserver/authn/webhook"
)

func decode(t testing.TB, data []byte) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// reviewer is a server that reviews tokens.
type reviewer struct {
	mu     sync.Mutex
	answer func(token string) authenticationv1.TokenReviewStatus
}

func (v *reviewer) set(answer func(string) authenticationv1.TokenReviewStatus) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answer = answer
}

func (v *reviewer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	review := authenticationv1.TokenReview{}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Kind != "TokenReview" || r.URL.Path != "/review" {
		http.Error(w, "no review", http.StatusBadRequest)
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	review.Status = v.answer(review.Spec.Token)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // in the version that was sent
}

func reviewedToken(t *testing.T) *authntest.Subject { return reviewed(t, "v1") }

func reviewedTokenBeta(t *testing.T) *authntest.Subject { return reviewed(t, "v1beta1") }

func reviewed(t *testing.T, version string) *authntest.Subject {
	const token = "sesame-1"
	clock, v := newClock(), &reviewer{}
	user := authn.User{Username: "anna", UID: "7", Groups: []string{"admins"}, Extra: map[string]authenticationv1.ExtraValue{"shop.example/a": {"b", "c"}}}
	good := authenticationv1.TokenReviewStatus{Authenticated: true, User: user, Audiences: []string{"api", "vault"}}
	none := authenticationv1.TokenReviewStatus{}
	knows := func(known authenticationv1.TokenReviewStatus) func(string) authenticationv1.TokenReviewStatus {
		return func(sent string) authenticationv1.TokenReviewStatus {
			if sent == token {
				return known
			}
			return none
		}
	}
	v.set(knows(good))
	s := httptest.NewTLSServer(v)
	t.Cleanup(s.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.URL + "/review", InsecureSkipTLSVerify: true}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	hook, err := webhook.New(path, version, serverAudiences, wait.Backoff{Steps: 1})
	if err != nil {
		t.Fatal(err)
	}
	cache := tokencache.New(hook, tokencache.Options{TTL: time.Minute, Failures: true, Clock: clock, Log: quiet})
	// later has the server say something else, which counts when its first answer is forgotten.
	later := func(name, err string, status authenticationv1.TokenReviewStatus) authntest.Attack {
		return authntest.Attack{Name: name, Error: err, Before: func() {
			v.set(knows(status))
			clock.SetTime(start.Add(time.Minute + time.Second))
		}}
	}
	const invalid = "invalid bearer token"
	return &authntest.Subject{
		Authenticator: bearer.New(cache, authn.NoNotes{}), Good: func() *http.Request { return authntest.WithToken(token) }, User: user, Secrets: []string{token},
		Bad: map[authntest.Hazard][]authntest.Attack{
			authntest.WrongKey: {attack("unknown", "sesame-2", invalid)},
			authntest.Expired:  {later("with an error", "[invalid bearer token, it is too late]", authenticationv1.TokenReviewStatus{Error: "it is too late", Audiences: good.Audiences})},
			authntest.WrongAudience: {
				{Name: "reviewed for another", Audiences: []string{"other"}, Error: invalid},
				later("of another", invalid, authenticationv1.TokenReviewStatus{Authenticated: true, User: user, Audiences: []string{"vault"}}),
			},
			authntest.Tampered:  {attack("longer", token+"x", invalid), attack("shorter", token[1:], invalid)},
			authntest.Oversized: {attack("padded", token+strings.Repeat("x", bearer.MaxToken), "bearer token is too long")},
			authntest.Empty:     {attack("no token", "", ""), {Name: "no header", Request: bare}},
			authntest.Revoked: {
				later("not authenticated any more", invalid, none),
				{Name: "no server any more", Error: "[invalid bearer token, Post ", Before: func() {
					s.Close()
					clock.SetTime(start.Add(time.Hour))
				}},
			},
		},
		Exempt: map[authntest.Hazard]string{authntest.NotYetValid: "the server decides that"},
	}
}
