package identity_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/authz"
	"skiff/internal/cluster"
	"skiff/internal/store/memory"
)

const masters = "system:masters"

var everyLoop = []string{"*"}

// component is the identity of a kubeconfig in the data directory, with requests (METHOD PATH) that it may and may not send.
type component struct {
	kubeconfig    string
	user          string
	groups        []string
	mayDo, mayNot []string
}

var components = []component{
	{kubeconfig: "admin", user: "kubernetes-admin", groups: []string{masters}, mayDo: []string{
		"GET /api/v1/secrets", "GET /metrics", "GET /", "POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "DELETE /api/v1/nodes/none",
	}},
	{kubeconfig: "controller-manager", user: "system:kube-controller-manager",
		mayDo: []string{
			"GET /api/v1/secrets", "GET /apis/apps/v1/deployments", // the garbage collector watches everything
			"POST /api/v1/namespaces/default/serviceaccounts/none/token", "POST /apis/authentication.k8s.io/v1/tokenreviews",
			"POST /api/v1/namespaces/default/events", "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager",
		},
		mayNot: []string{ // its controllers use their own service accounts
			"POST /api/v1/namespaces/default/pods", "DELETE /api/v1/namespaces/default/pods/none", "DELETE /api/v1/nodes/none",
			"POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "PUT /apis/coordination.k8s.io/v1/namespaces/default/leases/kube-scheduler", "GET /metrics",
		}},
	{kubeconfig: "scheduler", user: "system:kube-scheduler",
		mayDo: []string{
			"GET /api/v1/pods", "GET /api/v1/nodes", "GET /apis/storage.k8s.io/v1/storageclasses", "POST /api/v1/namespaces/default/pods/none/binding",
			"PATCH /api/v1/namespaces/default/pods/none/status", "PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler",
		},
		mayNot: []string{
			"GET /api/v1/secrets", "GET /api/v1/namespaces/kube-system/secrets/none", "GET /api/v1/configmaps", "POST /api/v1/namespaces/default/pods",
			"PATCH /api/v1/nodes/none", "PUT /apis/coordination.k8s.io/v1/namespaces/default/leases/kube-controller-manager",
			"POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "POST /api/v1/namespaces/default/serviceaccounts/none/token",
		}},
	{kubeconfig: "proxy", user: "system:kube-proxy",
		mayDo: []string{"GET /api/v1/services", "GET /apis/discovery.k8s.io/v1/endpointslices", "GET /api/v1/nodes/none",
			"POST /apis/events.k8s.io/v1/namespaces/default/events"},
		mayNot: []string{"GET /api/v1/secrets", "GET /api/v1/pods", "PATCH /api/v1/nodes/none", "POST /api/v1/namespaces/default/services"}},
}

// TestWhoAskedWhat starts a cluster and uses every kubeconfig that it has written. Each is a user of its own, in its own groups, and may do its
// work and no more; and of all users that sent a request, only the administrator is in system:masters.
func TestWhoAskedWhat(t *testing.T) {
	t.Parallel()
	var seen requestRecorder
	dir := startCluster(t, func(c *cluster.Config) { c.Seen, c.Controllers = seen.saw, everyLoop })
	made, err := filepath.Glob(filepath.Join(dir, "*.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range made {
		name := strings.TrimSuffix(filepath.Base(file), ".kubeconfig")
		if !slices.ContainsFunc(components, func(c component) bool { return c.kubeconfig == name }) {
			t.Errorf("nobody knows who %s is", file)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
	for _, c := range components {
		t.Run(c.kubeconfig, func(t *testing.T) { c.check(t, configOf(t, dir, c.kubeconfig)) })
	}
	for user, groups := range seen.users() {
		if slices.Contains(groups, masters) != (user == "kubernetes-admin") {
			t.Errorf("%s asked, in groups %q", user, groups)
		}
	}
	t.Log(seen.String())
}

func (c *component) check(t *testing.T, config *rest.Config) {
	t.Helper()
	groups := append(slices.Clone(c.groups), "system:authenticated")
	if who := whoami(t, config); who.Username != c.user || !slices.Equal(who.Groups, groups) || who.UID != "" {
		t.Errorf("is %+v, want user %s in groups %q", who, c.user, groups)
	}
	for _, request := range c.mayDo {
		if err := try(t, config, request); refused(err) {
			t.Errorf("%s: %v", request, err)
		}
	}
	for _, request := range c.mayNot {
		if err := try(t, config, request); !refused(err) || !strings.Contains(err.Error(), fmt.Sprintf("User %q cannot", c.user)) {
			t.Errorf("%s: %v, must be refused", request, err)
		}
	}
}

// requestRecorder records the users of all requests.
type requestRecorder struct {
	mu     sync.Mutex
	groups map[string][]string
	what   map[string]map[string]bool
}

func (s *requestRecorder) saw(r *http.Request, a *authz.Attributes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups == nil {
		s.groups, s.what = map[string][]string{}, map[string]map[string]bool{}
	}
	s.groups[a.User.Username] = a.User.Groups
	if s.what[a.User.Username] == nil {
		s.what[a.User.Username] = map[string]bool{}
	}
	thing := a.Plural
	if !a.Resource {
		thing = a.Path
	} else if a.Subresource != "" {
		thing += "/" + a.Subresource
	}
	s.what[a.User.Username][a.Verb+" "+thing] = true
}

// users returns the users of all requests, with their groups.
func (s *requestRecorder) users() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.groups)
}

func (s *requestRecorder) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out strings.Builder
	for _, user := range slices.Sorted(maps.Keys(s.what)) {
		fmt.Fprintf(&out, "%s %q:\n  %s\n", user, s.groups[user], strings.Join(slices.Sorted(maps.Keys(s.what[user])), "\n  "))
	}
	return out.String()
}

func whoami(t *testing.T, config *rest.Config) authenticationv1.UserInfo {
	t.Helper()
	review, err := clientOf(t, config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

// try sends a request that changes nothing, whatever the answer.
func try(t *testing.T, config *rest.Config, request string) error {
	t.Helper()
	method, path, _ := strings.Cut(request, " ")
	r := clientOf(t, config).CoreV1().RESTClient().Verb(method).RequestURI(path)
	switch method {
	case http.MethodPost, http.MethodPut:
		r.Body([]byte("{}")).SetHeader("Content-Type", "application/json").Param("dryRun", "All")
	case http.MethodPatch:
		r.Body([]byte("{}")).SetHeader("Content-Type", "application/merge-patch+json").Param("dryRun", "All")
	case http.MethodDelete:
		r.Param("dryRun", "All")
	}
	return r.Do(t.Context()).Error()
}

// refused reports whether an answer says that the user may not send the request.
func refused(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot ")
}

// TestIdle: while a cluster starts and is idle, there are no anonymous requests, and none of system:masters. The
// API server by itself sends no request in a minute.
func TestIdle(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		var seen requestRecorder
		startCluster(t, func(c *cluster.Config) { c.Seen, c.Controllers = seen.saw, everyLoop })
		const rest = 2 * time.Second
		time.Sleep(rest)
		known := []string{"system:kube-controller-manager", "system:kube-scheduler", "system:kube-proxy"}
		for user, groups := range seen.users() {
			named := slices.Contains(known, user) || strings.HasPrefix(user, "system:serviceaccount:kube-system:") || strings.HasPrefix(user, "system:node:")
			if !named || slices.Contains(groups, masters) {
				t.Errorf("%s asked, in groups %q", user, groups)
			}
		}
		t.Logf("who asked what:\n%s", seen.String())
	})
	t.Run("server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var seen requestRecorder
			store := memory.New(memory.Options{})
			defer store.Close()
			server, err := apiserver.New(apiserver.Options{Store: store, Seen: seen.saw, Authorization: cluster.DefaultAuthorization(), AggregateRoles: true,
				Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			if err := server.WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if who := seen.String(); who != "" {
				t.Errorf("it asked itself:\n%s", who)
			}
		})
	})
}
