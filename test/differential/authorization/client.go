package authorization

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// Client asks a server as its administrator.
type Client struct {
	config *rest.Config
	api    kubernetes.Interface
	mapper meta.RESTMapper
}

// NewClient returns a client for the server of a kubeconfig.
func NewClient(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	groups, err := restmapper.GetAPIGroupResources(api.Discovery())
	if err != nil {
		return nil, err
	}
	return &Client{config, api, restmapper.NewDiscoveryRESTMapper(groups)}, nil
}

// Objects reads a file of objects.
func Objects(path string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for i, doc := range strings.Split(string(text), "\n---\n") {
		obj := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", path, i+1, err)
		}
		if len(obj.Object) > 0 {
			objects = append(objects, obj)
		}
	}
	return objects, nil
}

// Create creates objects, and waits until the rules of aggregated roles have settled.
func (c *Client) Create(ctx context.Context, objects []*unstructured.Unstructured) error {
	for _, obj := range objects {
		resource, err := c.resource(c.config, obj)
		if err != nil {
			return err
		}
		made, err := resource.Create(ctx, obj, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
		if status, ok := obj.Object["status"]; ok {
			made.Object["status"] = status
			if _, err := resource.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
				return fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
			}
		}
	}
	return c.settle(ctx)
}

// Defaults returns the roles and bindings of a cluster, when the aggregated ones have settled.
func (c *Client) Defaults(ctx context.Context) ([]*unstructured.Unstructured, error) {
	if err := c.settle(ctx); err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, resource := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		list, err := client.Resource(rbacv1.SchemeGroupVersion.WithResource(resource)).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
	}
	return all, nil
}

// The aggregation of roles counts as done when nothing has changed for quiet; settleTimeout bounds the wait for that.
const (
	quiet         = 3 * time.Second
	settleTimeout = time.Minute
)

func (c *Client) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for before := ""; ; {
		roles, err := c.api.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var versions []string
		empty := false
		for _, r := range roles.Items {
			versions = append(versions, r.ResourceVersion)
			empty = empty || r.AggregationRule != nil && len(r.Rules) == 0
		}
		now := strings.Join(versions, " ")
		if now == before && !empty {
			return nil
		}
		before = now
		select {
		case <-ctx.Done():
			return errors.New("the aggregated roles do not settle")
		case <-time.After(quiet):
		}
	}
}

// Ask returns the server's answer.
func (c *Client) Ask(ctx context.Context, q *Question) ([]string, error) {
	if q.Access != nil {
		review, err := c.api.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: *q.Access}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		return Decided(review.Status), nil
	}
	as := rest.CopyConfig(c.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: q.User, Groups: q.Groups}
	if q.Write != nil {
		return c.write(ctx, as, q.Write)
	}
	api, err := kubernetes.NewForConfig(as)
	if err != nil {
		return nil, err
	}
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: q.Rules}}
	if review, err = api.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	return Listed(review.Status), nil
}

// AskOften asks so often that most probably every possible answer comes, and returns all answers.
func (c *Client) AskOften(ctx context.Context, q *Question) ([]string, error) {
	const times = 50
	var answers []string
	for range times {
		answer, err := c.Ask(ctx, q)
		if err != nil || q.Access == nil || len(answer) > 1 {
			return answer, err
		}
		answers = append(answers, answer...)
	}
	slices.Sort(answers)
	return slices.Compact(answers), nil
}

// write sends a write as a dry run.
func (c *Client) write(ctx context.Context, as *rest.Config, w *Write) ([]string, error) {
	resource, err := c.resource(as, w.Object)
	if err != nil {
		return nil, err
	}
	dry := []string{metav1.DryRunAll}
	if w.Verb == "create" {
		_, err = resource.Create(ctx, w.Object, metav1.CreateOptions{DryRun: dry})
	} else {
		admin, failed := c.resource(c.config, w.Object)
		if failed != nil {
			return nil, failed
		}
		live, failed := admin.Get(ctx, w.Object.GetName(), metav1.GetOptions{})
		if failed != nil {
			return nil, failed
		}
		changed, failed := Patch(live, w.Object)
		if failed != nil {
			return nil, failed
		}
		_, err = resource.Update(ctx, changed, metav1.UpdateOptions{DryRun: dry})
	}
	var status apierrors.APIStatus
	if err != nil && !errors.As(err, &status) {
		return nil, err
	}
	return Written(err), nil
}

// Patch applies a merge patch.
func Patch(live, patch *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	before, err := json.Marshal(live)
	if err != nil {
		return nil, err
	}
	change, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	after, err := jsonpatch.MergePatch(before, change)
	if err != nil {
		return nil, err
	}
	changed := &unstructured.Unstructured{}
	return changed, json.Unmarshal(after, changed)
}

func (c *Client) resource(config *rest.Config, obj *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	gvk := obj.GroupVersionKind()
	m, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		return client.Resource(m.Resource).Namespace(obj.GetNamespace()), nil
	}
	return client.Resource(m.Resource), nil
}
