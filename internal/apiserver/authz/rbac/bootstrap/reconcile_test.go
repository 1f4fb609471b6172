package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/google/go-cmp/cmp"

	"skiff/internal/apiserver/authz/rbac"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

// recordingStore records writes, and can fail.
type recordingStore struct {
	*objectstest.Store
	mu                        sync.Mutex
	created, updated, deleted []string
	fail                      func(name string) error
}

func (c *recordingStore) note(list *[]string, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		if err := c.fail(name); err != nil {
			return err
		}
	}
	*list = append(*list, name)
	return nil
}

func (c *recordingStore) Create(ctx context.Context, resource schema.GroupResource, obj catalog.Object) error {
	if err := c.note(&c.created, obj.GetName()); err != nil {
		return err
	}
	return c.Store.Create(ctx, resource, obj)
}

func (c *recordingStore) Update(ctx context.Context, resource schema.GroupResource, sub, namespace, name string, change func(catalog.Object) error) error {
	if err := c.note(&c.updated, name); err != nil {
		return err
	}
	return c.Store.Update(ctx, resource, sub, namespace, name, change)
}

func (c *recordingStore) Delete(ctx context.Context, resource schema.GroupResource, namespace, name string, uid types.UID) error {
	if err := c.note(&c.deleted, name); err != nil {
		return err
	}
	return c.Store.Delete(ctx, resource, namespace, name, uid)
}

func (c *recordingStore) reset() { c.created, c.updated, c.deleted = nil, nil, nil }

// everything returns the number of objects in a new cluster: upstream's and skiff's.
func everything() int {
	p, n := Default(), 141
	countSkiff := func(o metav1.Object) {
		if strings.HasPrefix(o.GetName(), skiffPrefix) || strings.HasPrefix(o.GetName(), joinPrefix) {
			n++
		}
	}
	for _, r := range p.ClusterRoles {
		countSkiff(r)
	}
	for _, b := range p.ClusterRoleBindings {
		countSkiff(b)
	}
	for _, r := range p.Roles {
		countSkiff(r)
	}
	for _, b := range p.RoleBindings {
		countSkiff(b)
	}
	return n
}

var quiet = slog.New(slog.DiscardHandler)

func reconciled(t *testing.T) *recordingStore {
	t.Helper()
	c := &recordingStore{Store: objectstest.New()}
	if err := Reconcile(t.Context(), c, quiet); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestReconcileCreatesAllAndThenWritesNothing(t *testing.T) {
	c := reconciled(t)
	if len(c.created) != everything() || len(c.updated) != 0 || len(c.deleted) != 0 {
		t.Errorf("%d creates, %d updates, %d deletes", len(c.created), len(c.updated), len(c.deleted))
	}
	if err := rbac.NewAggregator(c, quiet).Sync(t.Context()); err != nil { // what others have written since
		t.Fatal(err)
	}
	c.reset()
	if err := Reconcile(t.Context(), c, quiet); err != nil {
		t.Fatal(err)
	}
	if n := len(c.created) + len(c.updated) + len(c.deleted); n != 0 {
		t.Errorf("%d writes although all was there: %q %q %q", n, c.created, c.updated, c.deleted)
	}
}

// edit changes an object of the store.
func edit[T catalog.Object](t *testing.T, c *recordingStore, resource schema.GroupResource, namespace, name string, change func(T)) {
	t.Helper()
	err := c.Store.Update(t.Context(), resource, "", namespace, name, func(obj catalog.Object) error {
		change(obj.(T))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func get[T catalog.Object](c *recordingStore, resource schema.GroupResource, namespace, name string) T {
	return c.Get(resource, namespace, name).(T)
}

func TestReconcileAddsWhatIsMissing(t *testing.T) {
	c := reconciled(t)
	own := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"example.com"}, Resources: []string{"things"}}
	edit(t, c, rbac.ClusterRoles, "", "system:volume-scheduler", func(r *rbacv1.ClusterRole) {
		r.Rules = []rbacv1.PolicyRule{own, r.Rules[0], allow("get watch", "storage.k8s.io", "storageclasses")}
		r.Labels = map[string]string{"mine": "too"}
		r.Annotations = map[string]string{rbacv1.AutoUpdateAnnotationKey: "yes", "mine": "too"}
	})
	edit(t, c, rbac.ClusterRoles, "", "edit", func(r *rbacv1.ClusterRole) {
		r.AggregationRule.ClusterRoleSelectors = []metav1.LabelSelector{{MatchLabels: map[string]string{"mine": "too"}}}
	})
	edit(t, c, rbac.ClusterRoles, "", "system:kube-dns", func(r *rbacv1.ClusterRole) {
		r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{}}}
	})
	edit(t, c, rbac.Roles, "kube-public", bootstrapSigner, func(r *rbacv1.Role) { r.Rules = nil })
	edit(t, c, rbac.ClusterRoleBindings, "", "system:kube-scheduler", func(b *rbacv1.ClusterRoleBinding) { b.Subjects = []rbacv1.Subject{user("mine")} })
	edit(t, c, rbac.RoleBindings, "kube-system", schedulerLeader, func(b *rbacv1.RoleBinding) { b.Subjects = b.Subjects[1:] })
	c.reset()
	if err := Reconcile(t.Context(), c, quiet); err != nil {
		t.Fatal(err)
	}
	if len(c.created) != 0 || len(c.updated) != 6 || len(c.deleted) != 0 {
		t.Errorf("%q %q %q", c.created, c.updated, c.deleted)
	}
	r := get[*rbacv1.ClusterRole](c, rbac.ClusterRoles, "", "system:volume-scheduler")
	all := role("system:volume-scheduler").Rules
	all = append(all, own, allow(readUpdate, "core", "persistentvolumes"), allow("get watch", "storage.k8s.io", "storageclasses"))
	all = append(all, allow("list", "storage.k8s.io", "storageclasses")) // missing rules are added one verb at a time, as upstream does
	for _, verb := range words(readUpdate) {
		all = append(all, allow(verb, "core", "persistentvolumeclaims"))
	}
	if diff := cmp.Diff(all, r.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"mine": "too", "kubernetes.io/bootstrapping": "rbac-defaults"}, r.Labels); diff != "" {
		t.Errorf("labels: %s", diff)
	}
	if diff := cmp.Diff(map[string]string{"mine": "too", rbacv1.AutoUpdateAnnotationKey: "yes"}, r.Annotations); diff != "" {
		t.Errorf("annotations: %s", diff)
	}
	if n := len(get[*rbacv1.ClusterRole](c, rbac.ClusterRoles, "", "edit").AggregationRule.ClusterRoleSelectors); n != 2 {
		t.Errorf("edit has %d selectors", n)
	}
	if get[*rbacv1.ClusterRole](c, rbac.ClusterRoles, "", "system:kube-dns").AggregationRule != nil {
		t.Error("system:kube-dns still gathers rules")
	}
	b := get[*rbacv1.ClusterRoleBinding](c, rbac.ClusterRoleBindings, "", "system:kube-scheduler")
	if diff := cmp.Diff([]rbacv1.Subject{user("mine"), user(scheduler)}, b.Subjects); diff != "" {
		t.Errorf("subjects: %s", diff)
	}
	c.reset()
	if err := Reconcile(t.Context(), c, quiet); err != nil || len(c.updated) != 0 {
		t.Errorf("a second time: %v %q", err, c.updated)
	}
}

func TestObjectsMayOptOut(t *testing.T) {
	c := reconciled(t)
	edit(t, c, rbac.ClusterRoles, "", "system:discovery", func(r *rbacv1.ClusterRole) {
		r.Rules, r.Annotations[rbacv1.AutoUpdateAnnotationKey] = nil, "false"
	})
	edit(t, c, rbac.ClusterRoleBindings, "", "system:discovery", func(b *rbacv1.ClusterRoleBinding) {
		b.RoleRef.Name, b.Annotations[rbacv1.AutoUpdateAnnotationKey] = "other", "false"
	})
	c.reset()
	if err := Reconcile(t.Context(), c, quiet); err != nil {
		t.Fatal(err)
	}
	if len(c.created)+len(c.updated)+len(c.deleted) != 0 {
		t.Errorf("%q %q %q", c.created, c.updated, c.deleted)
	}
}

func TestBindingOfAnotherRoleIsRecreated(t *testing.T) {
	c := reconciled(t)
	edit(t, c, rbac.ClusterRoleBindings, "", "cluster-admin", func(b *rbacv1.ClusterRoleBinding) {
		b.RoleRef.Name, b.UID, b.Subjects = "view", "1", []rbacv1.Subject{user("mine")}
	})
	edit(t, c, rbac.RoleBindings, "kube-system", tokenCleaner, func(b *rbacv1.RoleBinding) { b.RoleRef.Kind = "ClusterRole" })
	c.reset()
	if err := Reconcile(t.Context(), c, quiet); err != nil {
		t.Fatal(err)
	}
	if len(c.created) != 2 || len(c.deleted) != 2 || len(c.updated) != 0 {
		t.Errorf("%q %q %q", c.created, c.deleted, c.updated)
	}
	b := get[*rbacv1.ClusterRoleBinding](c, rbac.ClusterRoleBindings, "", "cluster-admin")
	if b.RoleRef.Name != "cluster-admin" || b.UID == "1" || len(b.Subjects) != 1 || b.Subjects[0] != group("system:masters") {
		t.Errorf("%v", b)
	}
}

// lagging is a store whose cache is empty.
type lagging struct{ *recordingStore }

func (lagging) Get(schema.GroupResource, string, string) catalog.Object { return nil }

func TestOutdatedCache(t *testing.T) {
	c := reconciled(t)
	edit(t, c, rbac.ClusterRoles, "", "system:kube-dns", func(r *rbacv1.ClusterRole) { r.Rules = nil })
	c.reset()
	if err := Reconcile(t.Context(), lagging{c}, quiet); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"system:kube-dns"}, c.updated); diff != "" || len(c.deleted) != 0 {
		t.Errorf("updated %q, deleted %q", c.updated, c.deleted)
	}
}

// TestOldClustersKeepTheirChanges starts with the objects of an old cluster: view without aggregation, system:discovery for everybody.
func TestOldClustersKeepTheirChanges(t *testing.T) {
	c := &recordingStore{Store: objectstest.New()}
	own := allow("get", "example.com", "things")
	c.Put(rbac.ClusterRoles, role("view", own))
	binding := bind("system:discovery", user("mine"))
	binding.Annotations[rbacv1.AutoUpdateAnnotationKey] = "false"
	c.Put(rbac.ClusterRoleBindings, binding)
	if err := Reconcile(t.Context(), c, quiet); err != nil {
		t.Fatal(err)
	}
	moved := get[*rbacv1.ClusterRole](c, rbac.ClusterRoles, "", "system:aggregate-to-view")
	if diff := cmp.Diff(own, moved.Rules[0]); diff != "" || len(moved.Rules) < 12 || moved.Labels[aggregateTo+"view"] != "true" {
		t.Errorf("%v", moved)
	}
	if get[*rbacv1.ClusterRole](c, rbac.ClusterRoles, "", "view").AggregationRule == nil {
		t.Error("view does not gather rules")
	}
	split := get[*rbacv1.ClusterRoleBinding](c, rbac.ClusterRoleBindings, "", publicInfo)
	if len(split.Subjects) != 1 || split.Subjects[0] != user("mine") || split.RoleRef.Name != publicInfo {
		t.Errorf("%v", split)
	}
}

func TestReconcileRetriesWhileTheStoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failing := errors.New("failing")
		c := &recordingStore{Store: objectstest.New()}
		until := time.Now().Add(5 * time.Second)
		c.fail = func(name string) error {
			if name == "view" && time.Now().Before(until) {
				return failing
			}
			return nil
		}
		if err := Reconcile(t.Context(), c, quiet); err != nil {
			t.Fatal(err)
		}
		if len(c.created) != everything() {
			t.Errorf("%d creates", len(c.created))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := &recordingStore{Store: objectstest.New(), fail: func(name string) error {
			if name == "view" || name == bootstrapSigner {
				return errors.New("failing")
			}
			return nil
		}}
		began := time.Now()
		err := Reconcile(t.Context(), c, quiet)
		const want = "unable to initialize roles: [unable to reconcile clusterrole.rbac.authorization.k8s.io/view: failing, " +
			"unable to reconcile role.rbac.authorization.k8s.io/system:controller:bootstrap-signer in kube-system: failing, " +
			"unable to reconcile role.rbac.authorization.k8s.io/system:controller:bootstrap-signer in kube-public: failing, " +
			"unable to reconcile rolebinding.rbac.authorization.k8s.io/system:controller:bootstrap-signer in kube-system: failing, " +
			"unable to reconcile rolebinding.rbac.authorization.k8s.io/system:controller:bootstrap-signer in kube-public: failing]"
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
		if took := time.Since(began); took != deadline || len(c.created) != everything()-5 {
			t.Errorf("gave up after %s with %d creates", took, len(c.created))
		}
	})
}

func BenchmarkReconcileNothing(b *testing.B) {
	store := objectstest.New()
	if err := Reconcile(b.Context(), store, quiet); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := Reconcile(b.Context(), store, quiet); err != nil {
			b.Fatal(err)
		}
	}
}
