package rbac_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/authz/rbac"
	"skiff/internal/apiserver/authz/rbac/bootstrap"
	"skiff/internal/apiserver/objects/objectstest"
)

const bindings = 10_000

// largeCluster returns a cluster with the default roles and many bindings: half of them in 500 namespaces, to a user, a group and a service
// account each, half cluster-wide.
func largeCluster(b testing.TB) *objectstest.Store {
	store := objectstest.New()
	log := slog.New(slog.DiscardHandler)
	if err := bootstrap.Reconcile(b.Context(), store, log); err != nil {
		b.Fatal(err)
	}
	if err := rbac.NewAggregator(store, log).Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	roles := []string{"view", "edit", "admin", "system:kube-scheduler"}
	for i := range bindings {
		name, ref := fmt.Sprint("binding-", i), rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roles[i%len(roles)]}
		person := rbacv1.Subject{Kind: "User", Name: fmt.Sprint("user-", i)}
		if i%2 == 0 {
			store.Put(rbac.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: []rbacv1.Subject{person}})
			continue
		}
		namespace := fmt.Sprint("ns-", i%500)
		store.Put(rbac.RoleBindings, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: ref, Subjects: []rbacv1.Subject{
			person, {Kind: "Group", Name: fmt.Sprint("group-", i%1000)}, {Kind: "ServiceAccount", Namespace: namespace, Name: fmt.Sprint("account-", i%10)}}})
	}
	return store
}

func requests(r *rand.Rand) []*authz.Attributes {
	var list []*authz.Attributes
	for range 1000 {
		namespace := fmt.Sprint("ns-", r.IntN(500))
		u := &authn.User{Username: fmt.Sprint("user-", r.IntN(bindings)), Groups: []string{fmt.Sprint("group-", r.IntN(1000)), "developers", "system:authenticated"}}
		if r.IntN(3) == 0 {
			u = &authn.User{Username: fmt.Sprintf("system:serviceaccount:%s:account-%d", namespace, r.IntN(10)),
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
		}
		list = append(list, &authz.Attributes{User: u, Verb: []string{"get", "create", "watch"}[r.IntN(3)], Resource: true, Version: "v1",
			Plural: []string{"pods", "secrets", "nodes", "configmaps"}[r.IntN(4)], Namespace: namespace, Name: "x"})
	}
	return list
}

// BenchmarkAuthorize makes a thousand different decisions with ten thousand bindings, one after the other.
func BenchmarkAuthorize(b *testing.B) {
	a := rbac.New(largeCluster(b))
	attributes := requests(rand.New(rand.NewPCG(1, 1)))
	measure(b, a, attributes)
}

// BenchmarkWorstCase decides about a user to whom all ten thousand bindings grant something else.
func BenchmarkWorstCase(b *testing.B) {
	store := objectstest.New()
	for i := range bindings {
		name := fmt.Sprint("role-", i)
		store.Put(rbac.ClusterRoles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{name}}}})
		store.Put(rbac.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "ada"}}})
	}
	measure(b, rbac.New(store), []*authz.Attributes{{User: &authn.User{Username: "ada"}, Verb: "get", Resource: true, Plural: "pods", Name: "x"}})
}

func measure(b *testing.B, a *rbac.Authorizer, attributes []*authz.Attributes) {
	ctx := b.Context()
	allowed := 0
	for _, at := range attributes {
		if decision, _, _ := a.Authorize(ctx, at); decision == authz.Allow {
			allowed++
		}
	}
	b.ReportAllocs()
	times := make([]time.Duration, 0, b.N)
	for b.Loop() {
		began := time.Now()
		a.Authorize(ctx, attributes[len(times)%len(attributes)])
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
	b.ReportMetric(100*float64(allowed)/float64(len(attributes)), "%allowed")
}

// BenchmarkMemory measures the memory of the index besides the objects it points to.
func BenchmarkMemory(b *testing.B) {
	for _, test := range []struct {
		name  string
		store *objectstest.Store
	}{{"default roles", defaults(b)}, {"ten thousand bindings", largeCluster(b)}} {
		b.Run(test.name, func(b *testing.B) {
			for b.Loop() {
				before := heap()
				a := rbac.New(test.store)
				b.ReportMetric(float64(heap()-before)/1024, "kB")
				runtime.KeepAlive(a)
			}
		})
	}
}

func defaults(b testing.TB) *objectstest.Store {
	store := objectstest.New()
	if err := bootstrap.Reconcile(b.Context(), store, slog.New(slog.DiscardHandler)); err != nil {
		b.Fatal(err)
	}
	return store
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
