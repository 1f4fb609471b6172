package authorization

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/google/go-cmp/cmp"

	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/authz/node"
	"skiff/internal/apiserver/authz/rbac"
	"skiff/internal/apiserver/authz/rbac/bootstrap"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
)

// cluster holds skiff's authorizers without a server.
type cluster struct {
	store *objectstest.Store
	chain authz.Chain
	guard *rbac.Guard
}

// TestReplay asks skiff's authorizers every recorded question and expects upstream's answers.
func TestReplay(t *testing.T) {
	c := newCluster(t)
	files, err := filepath.Glob("testdata/*.questions")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, file := range files {
		questions, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range questions {
			asked++
			answer, err := c.ask(t.Context(), q)
			if err != nil {
				t.Fatalf("%s:%d: %v", file, q.Line, err)
			}
			if !q.Right(answer) {
				t.Errorf("%s:%d: %s\n(-upstream +skiff):\n%s", file, q.Line, q.Text, cmp.Diff(q.Answers, answer))
			}
		}
	}
	if asked < 400 {
		t.Errorf("only %d questions", asked)
	}
}

// TestFilesAreFormatted shows that recording again changes only answers.
func TestFilesAreFormatted(t *testing.T) {
	files, err := filepath.Glob("testdata/*.questions")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		questions, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(text), Format(questions)); diff != "" {
			t.Errorf("%s (-file +formatted):\n%s", file, diff)
		}
	}
}

func newCluster(t *testing.T) *cluster {
	store := objectstest.New()
	c := &cluster{store: store}
	roles := rbac.New(store)
	c.chain = authz.Chain{authz.Masters{}, node.New(store, bootstrap.NodeRules()), roles}
	c.guard = rbac.NewGuard(roles, c.chain, store)
	if err := bootstrap.Reconcile(t.Context(), store, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for _, resource := range []schema.GroupResource{rbac.ClusterRoleBindings, rbac.RoleBindings} { // roles that only skiff has are not compared
		for _, b := range store.List(resource, "") {
			if bootstrap.Own(b.GetName()) {
				store.Remove(resource, b.GetNamespace(), b.GetName())
			}
		}
	}
	given, err := Objects("testdata/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range given {
		info, obj, err := typed(u)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Create(t.Context(), info.GVR.GroupResource(), obj); err != nil {
			t.Fatal(err)
		}
	}
	if err := rbac.NewAggregator(store, slog.New(slog.DiscardHandler)).Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// typed converts an object of a file to its Go type.
func typed(u *unstructured.Unstructured) (*catalog.Info, catalog.Object, error) {
	for _, info := range all.Resources() {
		if info.GVK != u.GroupVersionKind() {
			continue
		}
		obj := info.New().(catalog.Object)
		data, err := json.Marshal(u)
		if err != nil {
			return nil, nil, err
		}
		return info, obj, json.Unmarshal(data, obj)
	}
	return nil, nil, fmt.Errorf("%s is not served", u.GroupVersionKind())
}

func (c *cluster) ask(ctx context.Context, q *Question) ([]string, error) {
	user := &authenticationv1.UserInfo{Username: q.User, Groups: q.Groups}
	switch {
	case q.Write != nil:
		err := c.write(ctx, user, q.Write)
		if err != nil && apierrors.ReasonForError(err) == "" {
			return nil, err
		}
		return Written(err), nil
	case q.Rules != "":
		rules, err := c.chain.RulesFor(ctx, user, q.Rules)
		status := authorizationv1.SubjectRulesReviewStatus{ResourceRules: rules.Resources, NonResourceRules: rules.Others, Incomplete: rules.Incomplete}
		if err != nil {
			status.EvaluationError = err.Error()
		}
		return Listed(status), nil
	}
	at := &authz.Attributes{User: user}
	if r := q.Access.ResourceAttributes; r != nil {
		at.Resource, at.Verb, at.Group, at.Plural, at.Subresource, at.Namespace, at.Name = true, r.Verb, r.Group, r.Resource, r.Subresource, r.Namespace, r.Name
		if r.FieldSelector != nil {
			at.FieldSelector = r.FieldSelector.RawSelector
		}
	} else {
		at.Verb, at.Path = q.Access.NonResourceAttributes.Verb, q.Access.NonResourceAttributes.Path
	}
	decision, reason, err := c.chain.Authorize(ctx, at)
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: decision == authz.Allow, Denied: decision == authz.Deny, Reason: reason}
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return Decided(status), nil
}

// write asks the escalation check about a role or binding.
func (c *cluster) write(ctx context.Context, user *authenticationv1.UserInfo, w *Write) error {
	writer, wanted, old := rbac.Writer{User: user}, w.Object, catalog.Object(nil)
	info, _, err := typed(w.Object)
	if err != nil {
		return err
	}
	if w.Verb == "update" {
		writer.Name = w.Object.GetName()
		old = c.store.Get(info.GVR.GroupResource(), w.Object.GetNamespace(), w.Object.GetName())
		data, err := json.Marshal(old)
		if err != nil {
			return err
		}
		live := &unstructured.Unstructured{}
		if err := json.Unmarshal(data, &live.Object); err != nil {
			return err
		}
		live.SetGroupVersionKind(info.GVK)
		if wanted, err = Patch(live, w.Object); err != nil {
			return err
		}
	}
	_, obj, err := typed(wanted)
	if err != nil {
		return err
	}
	if strings.HasSuffix(info.GVR.Resource, "bindings") {
		return c.guard.CheckBinding(ctx, writer, obj, old)
	}
	return c.guard.CheckRole(ctx, writer, obj, old)
}
