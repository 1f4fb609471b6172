package rbac

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

// aggregating returns a role that aggregates those with one of the labels.
func aggregating(name string, labels ...string) *rbacv1.ClusterRole {
	r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, AggregationRule: &rbacv1.AggregationRule{}}
	for _, label := range labels {
		r.AggregationRule.ClusterRoleSelectors = append(r.AggregationRule.ClusterRoleSelectors, metav1.LabelSelector{MatchLabels: map[string]string{label: ""}})
	}
	return r
}

func labelled(r *rbacv1.ClusterRole, labels ...string) *rbacv1.ClusterRole {
	r.Labels = map[string]string{}
	for _, label := range labels {
		r.Labels[label] = ""
	}
	return r
}

func verb(name string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{name}, APIGroups: []string{""}, Resources: []string{"pods"}}
}

func verbs(rules []rbacv1.PolicyRule) (list []string) {
	for _, r := range rules {
		list = append(list, r.Verbs...)
	}
	return list
}

func TestAggregate(t *testing.T) {
	for _, test := range []struct {
		name  string
		roles []*rbacv1.ClusterRole
		want  map[string][]string
	}{
		{"no roles that gather", []*rbacv1.ClusterRole{labelled(newClusterRole("a", verb("get")), "x")}, map[string][]string{}},
		{"by name, each rule once", []*rbacv1.ClusterRole{aggregating("all", "x"), labelled(newClusterRole("b", verb("list"), verb("get")), "x"),
			labelled(newClusterRole("a", verb("get"), verb("watch")), "x"), newClusterRole("c", verb("delete"))}, map[string][]string{"all": {"get", "watch", "list"}}},
		{"selector by selector", []*rbacv1.ClusterRole{aggregating("all", "y", "x"), labelled(newClusterRole("a", verb("get")), "x"),
			labelled(newClusterRole("b", verb("list")), "y")}, map[string][]string{"all": {"list", "get"}}},
		{"not itself", []*rbacv1.ClusterRole{labelled(aggregating("all", "x"), "x"), labelled(newClusterRole("a", verb("get")), "x")}, map[string][]string{"all": {"get"}}},
		{"through others", []*rbacv1.ClusterRole{aggregating("admin", "admin"), labelled(aggregating("edit", "edit"), "admin"), labelled(aggregating("view", "view"), "edit"),
			labelled(newClusterRole("v", verb("get")), "view"), labelled(newClusterRole("a", verb("delete")), "admin")},
			map[string][]string{"admin": {"delete", "get"}, "edit": {"get"}, "view": {"get"}}},
		{"nothing to gather", []*rbacv1.ClusterRole{aggregating("all", "x")}, map[string][]string{"all": nil}},
		{"in a circle", []*rbacv1.ClusterRole{labelled(aggregating("a", "x"), "y"), labelled(aggregating("b", "y"), "x"), labelled(newClusterRole("c", verb("get")), "x", "y")},
			map[string][]string{"a": {"get"}, "b": {"get"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Aggregate(test.roles)
			if len(got) != len(test.want) {
				t.Errorf("%v", got)
			}
			for name, want := range test.want {
				if !slices.Equal(verbs(got[name]), want) {
					t.Errorf("%s: %v, want %v", name, verbs(got[name]), want)
				}
			}
		})
	}
}

// flakyStore counts updates, of which the first few fail.
type flakyStore struct {
	*objectstest.Store
	mu      sync.Mutex
	failing int
	updates []string
}

func (w *flakyStore) Update(ctx context.Context, resource schema.GroupResource, sub, namespace, name string, change func(catalog.Object) error) error {
	w.mu.Lock()
	w.updates = append(w.updates, name)
	failing := w.failing > 0
	w.failing--
	w.mu.Unlock()
	if failing {
		return errors.New("ill")
	}
	return w.Store.Update(ctx, resource, sub, namespace, name, change)
}

func TestAggregatorKeepsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &flakyStore{Store: objectstest.New()}
		a := NewAggregator(store, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { a.Run(ctx); close(done) }()
		expect := func(step, name string, want []string, updates int) {
			t.Helper()
			synctest.Wait()
			store.mu.Lock()
			defer store.mu.Unlock()
			if got := verbs(store.Get(ClusterRoles, "", name).(*rbacv1.ClusterRole).Rules); !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", step, got, want)
			}
			if len(store.updates) != updates {
				t.Errorf("%s: updates %v", step, store.updates)
			}
			store.updates = nil
		}
		store.Put(ClusterRoles, aggregating("admin", "admin"))
		store.Put(ClusterRoles, labelled(aggregating("view", "view"), "admin"))
		expect("nothing to gather", "admin", nil, 0)
		store.Put(ClusterRoles, labelled(newClusterRole("v", verb("get")), "view"))
		expect("one write each", "admin", []string{"get"}, 2)
		store.Put(ClusterRoles, labelled(newClusterRole("other", verb("get"))))
		expect("a change by another client", "admin", []string{"get"}, 0)
		store.mu.Lock()
		store.failing = 3
		store.mu.Unlock()
		store.Remove(ClusterRoles, "", "v")
		time.Sleep(time.Second)
		expect("until it works", "view", nil, 2+2+1) // the third that fails is the first of a pair
		own := aggregating("admin", "admin")
		own.Rules = []rbacv1.PolicyRule{verb("*")}
		store.Put(ClusterRoles, own)
		expect("rules of its own do not last", "admin", nil, 1)
		cancel()
		<-done
	})
}
