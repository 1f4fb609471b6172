package rbac

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// Aggregate returns the rules that the roles with an aggregationRule should have: those of the roles its selectors choose, selector by
// selector, by name, each rule once. A chosen role that is itself aggregated counts with the rules it should have; where such roles
// choose each other in a circle, the one that is asked for again adds nothing.
func Aggregate(roles []*rbacv1.ClusterRole) map[string][]rbacv1.PolicyRule {
	a := aggregation{sorted: slices.Clone(roles), rules: map[string][]rbacv1.PolicyRule{}}
	slices.SortFunc(a.sorted, func(x, y *rbacv1.ClusterRole) int { return strings.Compare(x.Name, y.Name) })
	for _, r := range a.sorted {
		a.of(r)
	}
	return a.rules
}

type aggregation struct {
	sorted []*rbacv1.ClusterRole
	rules  map[string][]rbacv1.PolicyRule // of aggregated roles; none while they are being worked out
}

func (a *aggregation) of(r *rbacv1.ClusterRole) []rbacv1.PolicyRule {
	if r.AggregationRule == nil {
		return r.Rules
	}
	if rules, known := a.rules[r.Name]; known {
		return rules
	}
	a.rules[r.Name] = nil
	var rules []rbacv1.PolicyRule
	for i := range r.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&r.AggregationRule.ClusterRoleSelectors[i])
		if err != nil { // validation lets none through: the role stays as it is
			rules = r.Rules
			break
		}
		for _, chosen := range a.sorted {
			if chosen.Name == r.Name || !selector.Matches(labels.Set(chosen.Labels)) {
				continue
			}
			for _, rule := range a.of(chosen) {
				if !slices.ContainsFunc(rules, func(have rbacv1.PolicyRule) bool { return sameRule(have, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	a.rules[r.Name] = rules
	return rules
}

// SameRules reports whether two lists have the same rules in the same order.
func SameRules(x, y []rbacv1.PolicyRule) bool { return slices.EqualFunc(x, y, sameRule) }

func sameRule(x, y rbacv1.PolicyRule) bool {
	return slices.Equal(x.Verbs, y.Verbs) && slices.Equal(x.APIGroups, y.APIGroups) && slices.Equal(x.Resources, y.Resources) &&
		slices.Equal(x.ResourceNames, y.ResourceNames) && slices.Equal(x.NonResourceURLs, y.NonResourceURLs)
}

// Aggregator writes the rules of roles that have an aggregationRule whenever they should be others.
type Aggregator struct {
	write objects.Writer
	log   *slog.Logger
	wake  chan struct{}

	mu    sync.Mutex
	roles map[string]*rbacv1.ClusterRole
}

// NewAggregator returns an aggregator that follows the cluster roles of store. It writes only while it runs.
func NewAggregator(store objects.Store, log *slog.Logger) *Aggregator {
	a := &Aggregator{write: store, log: log, wake: make(chan struct{}, 1), roles: map[string]*rbacv1.ClusterRole{}}
	store.Follow(ClusterRoles, func(before, after catalog.Object) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if after != nil {
			a.roles[after.GetName()] = after.(*rbacv1.ClusterRole)
		} else {
			delete(a.roles, before.GetName())
		}
		select {
		case a.wake <- struct{}{}:
		default: // somebody has rung already
		}
	})
	return a
}

// How long a write that failed is left alone.
const (
	firstRetry = 10 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Run keeps the roles right until the context ends.
func (a *Aggregator) Run(ctx context.Context) {
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for err := a.Sync(ctx); err != nil; err = a.Sync(ctx) {
			a.log.Warn("the rules of aggregated roles could not be written", "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(retry):
			}
			retry = min(2*retry, lastRetry)
		}
		retry = firstRetry
	}
}

// Sync writes once what should be different.
func (a *Aggregator) Sync(ctx context.Context) error {
	a.mu.Lock()
	roles := slices.Collect(maps.Values(a.roles))
	a.mu.Unlock()
	should := Aggregate(roles)
	var errs []error
	for _, r := range roles {
		rules, aggregated := should[r.Name]
		if !aggregated || SameRules(r.Rules, rules) {
			continue
		}
		err := a.write.Update(ctx, ClusterRoles, "", "", r.Name, func(obj catalog.Object) error {
			if newest := obj.(*rbacv1.ClusterRole); newest.AggregationRule != nil {
				newest.Rules = copyRules(rules)
			}
			return nil
		})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("clusterrole %s: %w", r.Name, err))
		}
	}
	return errors.Join(errs...)
}

// copyRules makes rules that nobody else holds.
func copyRules(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	own := make([]rbacv1.PolicyRule, len(rules))
	for i := range rules {
		rules[i].DeepCopyInto(&own[i])
	}
	return own
}
