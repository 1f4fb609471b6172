package owned_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

var jobKind = batchv1.SchemeGroupVersion.WithKind("Job")

func job(name string, selects map[string]string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
		Spec: batchv1.JobSpec{Selector: &metav1.LabelSelector{MatchLabels: selects}}}
}

func pod(name string, labels map[string]string, owner *batchv1.Job) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("uid-" + name), Labels: labels}}
	if owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, jobKind)}
	}
	return p
}

func texts(actions []controller.Action) (out []string) {
	for _, a := range actions {
		if inner := controller.Inner(a); len(inner) > 0 {
			out = append(out, texts(inner)...)
			continue
		}
		text, _, _ := strings.Cut(a.String(), " {")
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// An owner has what it controls and selects, adopts orphans that it selects, and releases what it does not select any more.
func TestClaim(t *testing.T) {
	informer := informers.NewSharedInformerFactory(nil, 0).Core().V1().Pods().Informer()
	owned.Index(informer)
	owned.Index(informer) // by another loop
	me, other := job("me", nil), job("other", nil)
	mine := map[string]string{"job": "me", "more": "x"}
	deleted := pod("deleted-stray", mine, nil)
	deleted.DeletionTimestamp = &metav1.Time{}
	elsewhere := pod("elsewhere", mine, nil)
	elsewhere.Namespace = "b"
	for _, p := range []*corev1.Pod{pod("mine", mine, me), pod("changed", nil, me), pod("stray", mine, nil), pod("others", mine, other), pod("unrelated", nil, nil), deleted, elsewhere} {
		if err := informer.GetIndexer().Add(p); err != nil {
			t.Fatal(err)
		}
	}
	alive := owned.CanAdopt(me, func(context.Context, *client.Client) (metav1.Object, error) { return me, nil })
	for _, selector := range []string{"job=me", "job", "job in (me,you)", "more=x,job=me"} { // found by a required label, or by going through all
		s, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		c := owned.Claim[*corev1.Pod](informer.GetIndexer(), me, jobKind, s, alive, "f")
		if len(c.Owned) != 1 || c.Owned[0].Name != "mine" {
			t.Errorf("%s: owned %v", selector, c.Owned)
		}
		if got, want := texts(c.Actions), []string{"check that a/me is still there", "patch Pod a/changed", "patch Pod a/stray"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q", selector, got)
		}
	}
	going := me.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{}
	if c := owned.Claim[*corev1.Pod](informer.GetIndexer(), going, jobKind, labels.SelectorFromSet(mine), alive); len(c.Owned) != 1 || len(c.Actions) != 0 {
		t.Errorf("an owner that is being deleted: %+v", c)
	}
}

// A change of a pod concerns its controller before and after; a change of an orphan the owners that might adopt it.
func TestKeys(t *testing.T) {
	informer := informers.NewSharedInformerFactory(nil, 0).Batch().V1().Jobs().Informer()
	selectorOf := func(j *batchv1.Job) *metav1.LabelSelector { return j.Spec.Selector }
	owned.IndexSelectors(informer, selectorOf)
	me, other := job("me", map[string]string{"job": "me"}), job("other", map[string]string{"job": "other"})
	exists := job("exists", nil)
	exists.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "any", Operator: metav1.LabelSelectorOpExists}}}
	nothing := job("nothing", nil)
	for _, j := range []*batchv1.Job{me, other, exists, nothing} {
		if err := informer.GetIndexer().Add(j); err != nil {
			t.Fatal(err)
		}
	}
	version := func(p *corev1.Pod, v string) *corev1.Pod { p.ResourceVersion = v; return p }
	deleting := pod("p", map[string]string{"job": "me"}, nil)
	deleting.DeletionTimestamp = &metav1.Time{}
	for _, c := range []struct {
		what          string
		before, after *corev1.Pod
		want          []string
	}{
		{"a new pod", nil, pod("p", nil, me), []string{"a/me"}},
		{"a change", version(pod("p", nil, me), "1"), version(pod("p", nil, me), "2"), []string{"a/me"}},
		{"no change", version(pod("p", nil, me), "1"), version(pod("p", nil, me), "1"), nil},
		{"gone", pod("p", nil, me), nil, []string{"a/me"}},
		{"another's", version(pod("p", nil, me), "1"), version(pod("p", nil, other), "2"), []string{"a/me", "a/other"}},
		{"a stray", nil, pod("p", map[string]string{"job": "other", "any": "1"}, nil), []string{"a/exists", "a/other"}},
		{"a stray whose labels changed", version(pod("p", nil, nil), "1"), version(pod("p", map[string]string{"job": "me"}, nil), "2"), []string{"a/me"}},
		{"a stray of which something else changed", version(pod("p", map[string]string{"job": "me"}, nil), "1"), version(pod("p", map[string]string{"job": "me"}, nil), "2"), nil},
		{"let go", version(pod("p", map[string]string{"job": "other"}, me), "1"), version(pod("p", map[string]string{"job": "other"}, nil), "2"), []string{"a/me", "a/other"}},
		{"a stray that is going", nil, deleting, nil},
	} {
		var before, after metav1.Object
		if c.before != nil {
			before = c.before
		}
		if c.after != nil {
			after = c.after
		}
		var got []string
		for _, key := range owned.Keys("Job", before, after, func(obj metav1.Object) []controller.Key {
			return owned.Selecting(informer.GetIndexer(), selectorOf, obj)
		}) {
			got = append(got, key.String())
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", c.what, got, c.want)
		}
	}
}

// Names look generated, but are the same for the same version of an owner, so that a pod that is created twice exists once.
func TestNames(t *testing.T) {
	me := job("me", nil)
	free := func(string) bool { return false }
	first := owned.Name(me, owned.Prefix("me"), "", free)
	if len(first) != len("me-")+5 || !strings.HasPrefix(first, "me-") || owned.Name(me, "me-", "", free) != first {
		t.Errorf("%q, %q", first, owned.Name(me, "me-", "", free))
	}
	if second := owned.Name(me, "me-", "", func(name string) bool { return name == first }); second == first {
		t.Error("a name that is taken")
	}
	later := me.DeepCopy()
	later.ResourceVersion = "2"
	if owned.Name(later, "me-", "", free) == first || owned.Name(me, "me-", "node", free) == first {
		t.Error("the same name for something else")
	}
	if long := owned.Name(me, strings.Repeat("x", 100), "", free); len(long) != 63 {
		t.Errorf("%q is %d long", long, len(long))
	}
}

// Loops that act on the same version of an owner choose the same names, even if some of the pods exist already.
func TestManyNames(t *testing.T) {
	me := job("me", nil)
	free := func(string) bool { return false }
	first := owned.Names(me, "me-", "", 300, free)
	like := regexp.MustCompile(`^me-[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	seen := map[string]bool{}
	for _, name := range first {
		if !like.MatchString(name) || seen[name] {
			t.Errorf("%q, seen %v", name, seen[name])
		}
		seen[name] = true
	}
	if len(seen) != 300 || !slices.Equal(first, owned.Names(me, "me-", "", 300, free)) {
		t.Errorf("%d names, and others the second time", len(seen))
	}
	if rest := owned.Names(me, "me-", "", 100, func(name string) bool { return slices.Contains(first[:200], name) }); !slices.Equal(rest, first[200:]) {
		t.Error("the rest is not the rest")
	}
	later := me.DeepCopy()
	later.ResourceVersion = "8"
	if slices.ContainsFunc(owned.Names(later, "me-", "", 300, free), func(name string) bool { return seen[name] }) {
		t.Error("another version has the same names")
	}
}
