package garbagecollector

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
)

var update = flag.Bool("update", false, "write what the collector decides into the stories")

// TestStories runs the stories in testdata, which explain themselves.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var told []string
			for _, text := range strings.Split(strings.TrimSpace(string(data)), "\n\n") {
				if !strings.HasPrefix(text, "#") { // a comment
					told = append(told, text)
					continue
				}
				is := tell(t, text)
				if is != text && !*update {
					t.Errorf("got:\n%s\nwant:\n%s", is, text)
				}
				told = append(told, is)
			}
			if *update {
				if err := os.WriteFile(file, []byte(strings.Join(told, "\n\n")+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// kinds holds the kinds in stories. Widgets are of a kind that is not served.
var kinds = func() map[kindName]*kind {
	out := map[kindName]*kind{}
	for _, k := range []struct {
		version, kind, plural string
		namespaced            bool
	}{{"v1", "Pod", "pods", true}, {"v1", "ConfigMap", "configmaps", true}, {"v1", "Node", "nodes", false}, {"apps/v1", "ReplicaSet", "replicasets", true},
		{"apps/v1", "Deployment", "deployments", true}, {"apps/v1beta1", "ReplicaSet", "replicasets", true}, {"rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false}} {
		gv, _ := schema.ParseGroupVersion(k.version)
		by := kindName{k.version, k.kind}
		out[by] = &kind{by, gv.WithResource(k.plural), k.namespaced}
	}
	return out
}()

// kindOf returns a kind by its name; "Old" ones are in a version that is not preferred.
func kindOf(word string) kindName {
	switch {
	case word == "Widget":
		return kindName{"example.com/v1", "Widget"}
	case word == "OldReplicaSet":
		return kindName{"apps/v1beta1", "ReplicaSet"}
	}
	for by := range kinds {
		if by.kind == word && by.apiVersion != "apps/v1beta1" {
			return by
		}
	}
	panic("no kind " + word)
}

// story is a graph and the objects that a story file names.
type story struct {
	graph     *graph
	woken     []types.UID
	unsettled bool
	version   int
	objects   map[string]object // as last observed, by Kind/name
}

func tell(t *testing.T, text string) string {
	s := &story{objects: map[string]object{}}
	s.graph = newGraph(func(uid types.UID) {
		if !slices.Contains(s.woken, uid) {
			s.woken = append(s.woken, uid)
		}
	})
	s.graph.served = kinds
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "  ") {
			continue // what was decided
		}
		out = append(out, line)
		if line == "look" {
			out = append(out, s.reconcile()...)
		} else if !strings.HasPrefix(line, "#") {
			if err := s.happens(line); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
		}
		check(t, s.graph)
	}
	return strings.Join(out, "\n")
}

// reconcile reconciles all queued nodes.
func (s *story) reconcile() []string {
	woken := s.woken
	s.woken = nil
	slices.Sort(woken)
	var out []string
	for _, uid := range woken {
		p := s.graph.decide(uid, !s.unsettled)
		var lines []string
		for _, action := range append(p.actions(), p.questions(nil, nil)...) {
			lines = append(lines, flat(action)...)
		}
		if p.requeue {
			lines = append(lines, "look again later")
		}
		if len(lines) == 0 {
			lines = []string{"nothing"}
		}
		for _, line := range lines {
			out = append(out, "  "+string(uid)+": "+line)
		}
	}
	if len(out) == 0 {
		out = []string{"  nobody is looked at"}
	}
	return out
}

func flat(action controller.Action) (lines []string) {
	if inner := controller.Inner(action); len(inner) > 0 {
		for _, a := range inner {
			lines = append(lines, flat(a)...)
		}
		slices.Sort(lines)
		return lines
	}
	return []string{strings.Replace(action.String(), "*v1.PartialObjectMetadata ", "", 1)}
}

// happens carries out a command: see testdata/background.txt for the syntax.
func (s *story) happens(line string) error {
	if line == "some caches are not filled" || line == "all caches are filled" {
		s.unsettled = line == "some caches are not filled"
		return nil
	}
	words := strings.Fields(strings.ReplaceAll(line, ",", " "))
	switch {
	case words[0] == "gone":
		o, ok := s.objects[words[1]]
		if !ok {
			return fmt.Errorf("there is no %s", words[1])
		}
		m := *o.meta
		m.ResourceVersion = s.next()
		s.graph.deleted(o.kind, &m)
		delete(s.objects, words[1])
		return nil
	case words[0] == "unserved":
		s.graph.removeKind(kinds[kindOf(words[1])])
		return nil
	case words[0] == "server:": // server: ReplicaSet default/web is absent
		said := map[string]answer{"absent": absent, "there": solid, "waiting": waiting}[words[4]]
		namespace, called, ok := strings.Cut(words[2], "/")
		if !ok {
			namespace, called = "", words[2]
		}
		s.graph.verified(uidOf(called), name{kindOf(words[1]), namespace, called}, said)
		return nil
	}
	return s.observe(words)
}

func uidOf(name string) types.UID { return types.UID("uid-" + name) }

func (s *story) next() string {
	s.version++
	return fmt.Sprint(s.version)
}

// observe parses "Kind [namespace/]name [of Kind/name [loosely] [and Kind/name [loosely]]...] [deleting] [afterwards] [with finalizer]...". An object with
// "afterwards" was created after all deletions.
func (s *story) observe(words []string) error {
	k := kinds[kindOf(words[0])]
	m := &metav1.PartialObjectMetadata{}
	namespace, called, ok := strings.Cut(words[1], "/")
	if !ok {
		namespace, called = "default", words[1]
	}
	if !k.namespaced {
		namespace = ""
	}
	m.Namespace, m.Name, m.UID, m.ResourceVersion = namespace, called, uidOf(called), s.next()
	for i := 2; i < len(words); i++ {
		switch words[i] {
		case "of", "and":
			i++
			kind, owner, _ := strings.Cut(words[i], "/")
			by := kindOf(kind)
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: by.apiVersion, Kind: by.kind, Name: owner, UID: uidOf(owner), BlockOwnerDeletion: new(true)})
		case "loosely":
			m.OwnerReferences[len(m.OwnerReferences)-1].BlockOwnerDeletion = nil
		case "deleting":
			m.DeletionTimestamp = new(metav1.Unix(0, 0))
		case "afterwards":
			m.CreationTimestamp = metav1.Unix(1, 0)
		case "with":
			i++
			m.Finalizers = append(m.Finalizers, words[i])
		default:
			return fmt.Errorf("what is %q?", words[i])
		}
	}
	s.objects[words[0]+"/"+called] = object{k, m}
	s.graph.observe(k, m)
	return nil
}

// check compares the graph with one that is built from the same objects.
func check(t *testing.T, g *graph) {
	t.Helper()
	dependents, blocking, uses := map[types.UID]map[types.UID]bool{}, map[types.UID]int{}, map[types.UID]int{}
	observed := 0
	for _, n := range g.nodes {
		if n.meta == nil {
			continue
		}
		observed++
		for _, ref := range n.meta.OwnerReferences {
			if dependents[ref.UID] == nil {
				dependents[ref.UID] = map[types.UID]bool{}
			}
			dependents[ref.UID][n.uid] = true
			if blocks(n, ref) {
				blocking[ref.UID]++
			}
			if owner := g.nodes[ref.UID]; owner != nil && !owner.isCalled(nameIn(n.meta.Namespace, ref)) {
				uses[ref.UID]++
			}
		}
	}
	for uid, n := range g.nodes {
		if n.meta == nil && len(n.dependents) == 0 {
			t.Errorf("%s is in the graph but nobody speaks of it", uid)
		}
		if n.uid != uid || n.blocking != blocking[uid] || len(n.dependents) != len(dependents[uid]) {
			t.Errorf("%s: %s has %d dependents, %d blocking; not %d, %d", uid, n.uid, len(n.dependents), n.blocking, len(dependents[uid]), blocking[uid])
		}
		users := 0
		for _, c := range n.claims {
			users += c.users
		}
		if users != uses[uid] {
			t.Errorf("%s is meant by %d names that it was not observed under, not by %d", uid, uses[uid], users)
		}
		for dependent := range n.dependents {
			if !dependents[uid][dependent.uid] {
				t.Errorf("%s does not depend on %s", dependent.uid, uid)
			}
		}
	}
	for uid := range dependents {
		if g.nodes[uid] == nil {
			t.Errorf("%s owns something but is not in the graph", uid)
		}
	}
}
