package apps

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	typedpolicyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
)

func (c cluster) budgets() typedpolicyv1.PodDisruptionBudgetInterface {
	return c.api.PolicyV1().PodDisruptionBudgets("default")
}

// budget creates a budget of web that asks for a number of pods.
func (c cluster) budget(namespace, name string, minAvailable intstr.IntOrString, labels map[string]string) *policyv1.PodDisruptionBudget {
	c.Helper()
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &minAvailable, Selector: selectWeb()}}
	b = must[*policyv1.PodDisruptionBudget](c)(c.api.PolicyV1().PodDisruptionBudgets(namespace).Create(c.ctx, b, metav1.CreateOptions{}))
	c.observed(namespace, name)
	return b
}

// observed waits until the status of a budget is that of its spec.
func (c cluster) observed(namespace, name string) *policyv1.PodDisruptionBudget {
	c.Helper()
	var b *policyv1.PodDisruptionBudget
	c.eventually(func() string {
		b = must[*policyv1.PodDisruptionBudget](c)(c.api.PolicyV1().PodDisruptionBudgets(namespace).Get(c.ctx, name, metav1.GetOptions{}))
		if b.Status.ObservedGeneration != b.Generation {
			return fmt.Sprintf("%s observed: its status is %+v of generation %d", name, b.Status, b.Generation)
		}
		return ""
	})
	return b
}

// allows waits until a budget allows a number of disruptions.
func (c cluster) allows(name string, want int32) {
	c.Helper()
	c.eventually(func() string {
		if b := c.observed("default", name); b.Status.DisruptionsAllowed != want {
			return fmt.Sprintf("%d disruptions allowed: the status is %+v", want, b.Status)
		}
		return ""
	})
}

func TestBudgetCollections(t *testing.T) {
	c := start(t)
	must[*corev1.Namespace](c)(c.api.CoreV1().Namespaces().Create(c.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "another"}}, metav1.CreateOptions{}))
	special := map[string]string{"foo_pdb": "bar_pdb"}
	c.budget("default", "foo", intstr.FromInt32(2), special)
	c.budget("default", "foo2", intstr.FromString("1%"), special)
	c.budget("another", "foo3", intstr.FromInt32(2), special)
	c.budget("default", "other", intstr.FromInt32(2), nil)
	list := func(namespace string, want ...string) {
		t.Helper()
		var got []string
		for _, b := range must[*policyv1.PodDisruptionBudgetList](c)(c.api.PolicyV1().PodDisruptionBudgets(namespace).List(c.ctx, metav1.ListOptions{LabelSelector: "foo_pdb=bar_pdb"})).Items {
			got = append(got, b.Name)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("in %q there are %v, not %v", namespace, got, want)
		}
	}
	list("", "foo", "foo2", "foo3")
	list("default", "foo", "foo2")
	c.ok(c.budgets().DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	list("", "foo3")
}

func TestBudgetObjects(t *testing.T) {
	c := start(t)
	c.budget("default", "foo", intstr.FromString("1%"), nil)
	b := c.observed("default", "foo")
	b.Spec.MinAvailable = new(intstr.FromString("2%"))
	b = must[*policyv1.PodDisruptionBudget](c)(c.budgets().Update(c.ctx, b, metav1.UpdateOptions{}))
	if b.Spec.MinAvailable.String() != "2%" || b.Generation != 2 {
		t.Errorf("updated: %+v", b)
	}
	patched := must[*policyv1.PodDisruptionBudget](c)(c.budgets().Patch(c.ctx, "foo", types.MergePatchType, []byte(`{"spec":{"minAvailable":"3%"}}`), metav1.PatchOptions{}))
	if patched.Spec.MinAvailable.String() != "3%" || patched.ResourceVersion == b.ResourceVersion {
		t.Errorf("patched: %+v", patched)
	}
	c.observed("default", "foo")
	c.ok(c.budgets().Delete(c.ctx, "foo", metav1.DeleteOptions{}))
	if _, err := c.budgets().Get(c.ctx, "foo", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("deleted: %v", err)
	}
}

func TestBudgetStatus(t *testing.T) {
	c := start(t)
	c.budget("default", "foo", intstr.FromInt32(1), nil)
	c.stray("a")
	c.allows("foo", 0)
	c.replicaSet(3)
	c.running(3, "old")
	c.allows("foo", 2)
}

func TestBudgetStatusWrites(t *testing.T) {
	c := start(t)
	c.budget("default", "foo", intstr.FromInt32(1), nil)
	c.stray("a")
	c.eventually(func() string { // the loop may be writing, too
		b := c.observed("default", "foo")
		b.Status.DisruptedPods = map[string]metav1.Time{"a": metav1.NewTime(time.Now())}
		_, err := c.budgets().UpdateStatus(c.ctx, b, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			return err.Error()
		}
		c.ok(err)
		return ""
	})
	if b := c.observed("default", "foo"); len(b.Status.DisruptedPods) != 1 {
		t.Errorf("updated: %+v", b.Status)
	}
	b := must[*policyv1.PodDisruptionBudget](c)(c.budgets().Patch(c.ctx, "foo", types.MergePatchType, []byte(`{"status":{"disruptedPods":null}}`), metav1.PatchOptions{}, "status"))
	if len(b.Status.DisruptedPods) != 0 {
		t.Errorf("patched: %+v", b.Status)
	}
}

func TestBudgetBlocksEviction(t *testing.T) {
	c := start(t)
	c.budget("default", "foo", intstr.FromInt32(3), nil)
	c.replicaSet(3)
	pods := c.running(3, "old")
	evict := func(name string) error {
		return c.api.CoreV1().Pods("default").EvictV1(c.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	refused := func(name string) {
		t.Helper()
		if err := evict(name); !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
			t.Errorf("the eviction is not refused for the budget: %v", err)
		}
	}
	change := func(patch string) {
		t.Helper()
		must[*policyv1.PodDisruptionBudget](c)(c.budgets().Patch(c.ctx, "foo", types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
	}
	refused(pods[0].Name)
	change(`{"spec":{"minAvailable":2}}`)
	c.allows("foo", 1)
	c.ok(evict(pods[0].Name))
	change(`{"spec":{"minAvailable":null,"maxUnavailable":0}}`)
	pods = c.running(3, "old")
	refused(pods[0].Name)
	c.ok(c.budgets().Delete(c.ctx, "foo", metav1.DeleteOptions{}))
	c.ok(evict(pods[0].Name))
	c.running(3, "old")
}
