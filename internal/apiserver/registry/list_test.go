package registry_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
)

func names(page registry.Page) string {
	var out []string
	for _, it := range page.Items {
		out = append(out, it.Name)
	}
	return strings.Join(out, " ")
}

func (r *rig) list(l registry.List) registry.Page {
	r.t.Helper()
	page, err := r.List(context.Background(), l)
	if err != nil {
		r.t.Fatal(err)
	}
	return page
}

// Pages are of one moment, whatever happens while they are read.
func TestPagesAreOfOneMoment(t *testing.T) {
	for _, where := range []string{"cache", "store"} {
		r := open(t, "", "configmaps")
		const objects = 1203 // several pages of the store's history too
		for i := range objects {
			r.create(fmt.Sprintf("n%04d", i), "old")
		}
		seen := 0
		l := registry.List{Selector: registry.Selector{Namespace: "default"}, Limit: 100}
		for {
			page := r.list(l)
			for _, it := range page.Items {
				if it.Name != fmt.Sprintf("n%04d", seen) || r.value(it) != "old" {
					t.Fatalf("%s is %s, %d seen", it.Name, r.value(it), seen)
				}
				seen++
			}
			if page.Continue == "" {
				if page.Remaining != nil {
					t.Errorf("%d remain after the last page", *page.Remaining)
				}
				break
			}
			if page.Remaining == nil || *page.Remaining != int64(objects-seen) {
				t.Errorf("%v remain after %d", page.Remaining, seen)
			}
			l.Continue = page.Continue
			if where == "store" { // the cache moves on
				random := rand.IntN(objects)
				if _, _, err := r.Update(t.Context(), set(fmt.Sprintf("n%04d", random), "new", "", write())); err != nil && !apierrors.IsNotFound(err) {
					t.Fatal(err)
				}
				if _, _, err := r.Delete(t.Context(), "default", fmt.Sprintf("n%04d", objects-1-seen/10), &metav1.DeleteOptions{}, write()); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Create(t.Context(), cm(fmt.Sprintf("n%04d-new-%d", random, seen), "new"), write()); err != nil {
					t.Fatal(err)
				}
				r.fresh()
			}
		}
		if seen != objects {
			t.Errorf("from the %s: %d objects", where, seen)
		}
	}
}

// When a compaction takes a page's moment away, the client is told, and how to go on without it.
func TestContinueExpires(t *testing.T) {
	r := open(t, "", "configmaps")
	for _, name := range []string{"a", "b", "c", "d"} {
		r.create(name, "1")
	}
	l := registry.List{Selector: registry.Selector{Namespace: "default"}, Limit: 2}
	l.Continue = r.list(l).Continue
	r.create("bb", "late")
	if got := names(r.list(l)); got != "c d" {
		t.Errorf("the next page is %s", got)
	}
	last := r.create("e", "late").Revision
	if err := r.store.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	r.fresh() // the cache has moved on
	_, err := r.List(t.Context(), l)
	if !apierrors.IsResourceExpired(err) {
		t.Fatalf("answered %v", err)
	}
	status := err.(apierrors.APIStatus).Status()
	if status.Code != 410 || !strings.HasPrefix(status.Message, "The provided continue parameter is too old") || status.ListMeta.Continue == "" {
		t.Fatalf("%+v", status)
	}
	l.Continue = status.ListMeta.Continue
	page := r.list(l)
	if got := names(page); got != "bb c" || page.Continue == "" {
		t.Errorf("goes on with %s", got)
	}
	l.Continue = page.Continue
	if got := names(r.list(l)); got != "d e" {
		t.Errorf("ends with %s", got)
	}
	if _, err := r.List(t.Context(), registry.List{ResourceVersion: "3", Match: metav1.ResourceVersionMatchExact}); !apierrors.IsResourceExpired(err) {
		t.Errorf("an exact version that is forgotten: %v", err)
	}
}

// Which state a list is of, by the version asked for.
func TestListVersions(t *testing.T) {
	r := open(t, "", "configmaps")
	a := r.create("a", "1")
	b := r.create("b", "1")
	c := r.create("c", "1")
	r.fresh()
	r.store.hold()
	d := r.create("d", "1") // not in the cache yet
	exact, atLeast := metav1.ResourceVersionMatchExact, metav1.ResourceVersionMatchNotOlderThan
	for _, test := range []struct {
		version string
		match   metav1.ResourceVersionMatch
		limit   int64
		want    string
		at      int64
		more    bool
	}{
		{"0", "", 0, "a b c", c.Revision, false},
		{"0", "", 1, "a b c", c.Revision, false}, // the limit is ignored, as upstream's cache does
		{"0", atLeast, 0, "a b c", c.Revision, false},
		{version(a), "", 0, "a b c", c.Revision, false},
		{version(a), atLeast, 0, "a b c", c.Revision, false},
		{version(a), atLeast, 2, "a b", c.Revision, true},
		{version(a), exact, 0, "a", a.Revision, false},
		{version(b), exact, 0, "a b", b.Revision, false},
		{version(b), exact, 1, "a", b.Revision, true},
		{version(b), "", 1, "a", b.Revision, true}, // with a limit a version is meant exactly
		{version(c), exact, 0, "a b c", c.Revision, false},
		{version(c), "", 2, "a b", c.Revision, true},
	} {
		page := r.list(registry.List{Selector: registry.Selector{Namespace: "default"}, ResourceVersion: test.version, Match: test.match, Limit: test.limit})
		if names(page) != test.want || page.Revision != test.at || (page.Continue != "") != test.more {
			t.Errorf("%+v: %s at %d, continue %q", test, names(page), page.Revision, page.Continue)
		}
	}
	done := make(chan registry.Page)
	for _, v := range []string{"", version(d)} {
		go func() {
			done <- r.list(registry.List{Selector: registry.Selector{Namespace: "default"}, ResourceVersion: v})
		}()
	}
	r.store.resume()
	for range 2 {
		if page := <-done; names(page) != "a b c d" || page.Revision != d.Revision {
			t.Errorf("%s at %d", names(page), page.Revision)
		}
	}
}

// selections are selectors, and which of the pods that createPods makes they pick, in the order of a list.
var selections = []struct{ namespace, labels, fields, want string }{
	{"", "", "", "p0 p2 p1 p3"}, {"ns1", "", "", "p1 p3"}, {"none", "", "", ""},
	{"", "", "spec.nodeName=n1", "p1 p3"}, {"", "", "spec.nodeName!=n1", "p0 p2"}, {"", "", "spec.nodeName=", "p0"},
	{"", "", "spec.nodeName=n1,metadata.name=p3", "p3"}, {"", "", "metadata.namespace=ns0", "p0 p2"}, {"ns0", "", "metadata.namespace=ns1", ""},
	{"", "n in (1,2)", "", "p2 p1"}, {"", "n", "spec.nodeName=n2", "p2"}, {"", "!n", "", ""}, {"", "n>1", "", "p2 p3"},
	{"", "", "metadata.name=p1", "p1"}, {"ns1", "", "metadata.name=p1", "p1"}, {"ns0", "", "metadata.name=p1", ""}, {"ns1", "", "metadata.name==p1,metadata.name!=p1", ""},
	{"ns1", "", "metadata.name=a/b", ""}, {"", "", "status.phase=Pending", "p0 p2 p1 p3"},
}

// createPods makes p0 to p3, the even ones in namespace ns0 and the odd ones in ns1.
func (r *rig) createPods() {
	r.t.Helper()
	for i, node := range []string{"", "n1", "n2", "n1"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns%d", i%2), Name: fmt.Sprintf("p%d", i), Labels: map[string]string{"n": fmt.Sprint(i)}},
			Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		r.Info.Default(pod)
		if _, err := r.Create(r.t.Context(), pod, write()); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestListSelects(t *testing.T) {
	r := open(t, "", "pods")
	r.createPods()
	for _, c := range selections {
		selector, err := r.NewSelector(r.Info, c.namespace, c.labels, c.fields)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		now := r.list(registry.List{Selector: selector})
		past := r.list(registry.List{Selector: selector, ResourceVersion: fmt.Sprint(now.Revision), Match: metav1.ResourceVersionMatchExact})
		if names(now) != c.want || names(past) != c.want {
			t.Errorf("%+v: %q now, %q then", c, names(now), names(past))
		}
		if now.Remaining != nil {
			t.Errorf("%+v: %d remain", c, *now.Remaining)
		}
	}
	// How many remain is told only if everything is selected.
	selector, err := r.NewSelector(r.Info, "", "n", "")
	if err != nil {
		t.Fatal(err)
	}
	page := r.list(registry.List{Selector: selector, Limit: 1})
	if page.Continue == "" || page.Remaining != nil {
		t.Errorf("%+v", page)
	}
	// Whether there is more does not depend on where a page comes from: the objects after the last that is selected do not count.
	if selector, err = r.NewSelector(r.Info, "", "n in (0,2)", ""); err != nil {
		t.Fatal(err)
	}
	first := r.list(registry.List{Selector: selector, Limit: 1})
	for _, where := range []string{"cache", "store"} {
		if last := r.list(registry.List{Selector: selector, Limit: 1, Continue: first.Continue}); names(first) != "p0" || names(last) != "p2" || last.Continue != "" {
			t.Errorf("from the %s: %s, then %s and %q", where, names(first), names(last), last.Continue)
		}
		if _, _, err := r.Delete(t.Context(), "ns1", "p3", &metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, write()); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		r.fresh() // the cache moves on
	}
}

// Whatever a watcher selects, it is told of what a list would show, though it hears of no more than it must.
func TestWatchSelects(t *testing.T) {
	r := open(t, "", "pods")
	watches := make([]*registry.Watch, len(selections))
	told := make([][]*cache.Change, len(selections))
	read := func(i int) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		changes, err := watches[i].Next(ctx, nil)
		told[i] = append(told[i], changes...)
		return err
	}
	for i, c := range selections {
		selector, err := r.NewSelector(r.Info, c.namespace, c.labels, c.fields)
		if err != nil {
			t.Fatal(err)
		}
		if _, watches[i], err = r.WatchFromNow(t.Context(), selector, true); err != nil {
			t.Fatal(err)
		}
		defer watches[i].Close()
		watches[i].Patient = i%2 == 0
		if err := read(i); !errors.Is(err, context.DeadlineExceeded) { // but it has said what it follows
			t.Fatalf("%+v: %v", c, err)
		}
	}
	r.createPods()
	r.fresh()
	for i, c := range selections {
		selector, _ := r.NewSelector(r.Info, c.namespace, c.labels, c.fields)
		want := strings.Fields(c.want)
		slices.Sort(want)
		var got []string
		for deadline := time.Now().Add(10 * time.Second); ; {
			if err := read(i); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%+v: %v", c, err)
			}
			got = nil
			for _, change := range told[i] {
				if kind, it := selector.Event(change); it != nil && kind == cache.Added {
					got = append(got, it.Name)
				}
			}
			if len(got) >= len(want) || time.Now().After(deadline) {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: told of %v", c, got)
		}
		if strings.Contains(c.fields, "nodeName=n1") && len(told[i]) > 2 {
			t.Errorf("%+v: heard of %d changes", c, len(told[i]))
		}
	}
}

func FuzzContinue(f *testing.F) {
	for _, token := range []string{
		"", "x", "!!!", base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":2,"start":"default/a\u0000"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-1,"start":"default/a"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":9223372036854775807,"start":"default/"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":-9223372036854775808,"start":"\u0000"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v1","rv":3,"start":"default/../../x"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`{"v":"meta.k8s.io/v2","rv":3,"start":"default/x"}`)),
		base64.RawURLEncoding.EncodeToString([]byte(`[`)), base64.RawURLEncoding.EncodeToString([]byte(`{"rv":1e99}`)),
	} {
		f.Add(token, int64(1))
	}
	r := open(f, "", "configmaps")
	for i := range 5 {
		r.create(fmt.Sprintf("n%d", i), "1")
	}
	f.Fuzz(func(t *testing.T, token string, limit int64) {
		ctx, cancel := context.WithCancel(t.Context()) // nobody waits for a revision of the future
		cancel()
		if raw, err := base64.RawURLEncoding.DecodeString(token); err == nil && strings.Contains(string(raw), `"rv":-`) {
			ctx = t.Context()
		}
		page, err := r.List(ctx, registry.List{Selector: registry.Selector{Namespace: "default"}, Continue: token, Limit: limit})
		if err != nil {
			if _, ok := err.(apierrors.APIStatus); !ok {
				t.Errorf("%v is no API error", err)
			}
			return
		}
		for _, it := range page.Items {
			if it.Namespace != "default" {
				t.Errorf("%s is elsewhere", it.Key)
			}
		}
	})
}

func FuzzSelector(f *testing.F) {
	for _, s := range [][2]string{
		{"app=x", ""}, {"app in (a,b),!c", "metadata.name=a"}, {"a==b,c!=d", "metadata.name!=a,metadata.namespace=x"}, {"a>1,b<2", "spec.nodeName=n"},
		{"((", "a=b=c"}, {"a notin ()", `metadata.name=a\,b`}, {",", "="}, {"a in (,)", `\`}, {strings.Repeat("a,", 1000), strings.Repeat("metadata.name=a,", 1000)},
	} {
		f.Add(s[0], s[1])
	}
	r := open(f, "", "configmaps")
	r.create("a", "1")
	f.Fuzz(func(t *testing.T, labels, fields string) {
		selector, err := r.NewSelector(r.Info, "default", labels, fields)
		if err != nil {
			if !apierrors.IsBadRequest(err) {
				t.Errorf("%v", err)
			}
			return
		}
		if _, err := r.List(t.Context(), registry.List{Selector: selector, ResourceVersion: "0"}); err != nil {
			t.Error(err)
		}
	})
}
