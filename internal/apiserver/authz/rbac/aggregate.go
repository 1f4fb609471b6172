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

// Aggregate returns the desired rules of the roles with an aggregationRule: those of the selected roles, in the order of the selectors and
// then of the roles' names, without duplicates. A selected role that is itself aggregated contributes its desired rules; in a cycle of such
// roles, the one that is reached again contributes nothing.
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
	rules  map[string][]rbacv1.PolicyRule // the desired rules of aggregated roles; nil while they are being computed
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
		if err != nil { // validation refuses such selectors; the role keeps its rules
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

// Aggregator keeps the rules of roles with an aggregationRule up to date.
type Aggregator struct {
	write objects.Writer
	log   *slog.Logger
	wake  chan struct{}

	mu    sync.Mutex
	roles map[string]*rbacv1.ClusterRole
}

// NewAggregator returns an aggregator of the cluster roles of store. It writes only while Run runs.
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
		default: // a wake-up is already pending
		}
	})
	return a
}

// The back-off after a failed write.
const (
	minBackoff = 10 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// Run writes the desired rules whenever cluster roles change, until the context ends.
func (a *Aggregator) Run(ctx context.Context) {
	backoff := minBackoff
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for err := a.Sync(ctx); err != nil; err = a.Sync(ctx) {
			a.log.Warn("failed to write the rules of aggregated cluster roles", "error", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(backoff):
			}
			backoff = min(2*backoff, maxBackoff)
		}
		backoff = minBackoff
	}
}

// Sync writes the rules of the roles that differ from the desired ones, once.
func (a *Aggregator) Sync(ctx context.Context) error {
	a.mu.Lock()
	roles := slices.Collect(maps.Values(a.roles))
	a.mu.Unlock()
	desired := Aggregate(roles)
	var errs []error
	for _, r := range roles {
		rules, aggregated := desired[r.Name]
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

// copyRules returns a deep copy of the rules.
func copyRules(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	copied := make([]rbacv1.PolicyRule, len(rules))
	for i := range rules {
		rules[i].DeepCopyInto(&copied[i])
	}
	return copied
}
