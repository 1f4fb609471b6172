package coordination

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog/catalogtest"
)

func TestStories(t *testing.T) { catalogtest.Run(t, Resources(), catalogtest.Options{}) }

// A lease with a strategy, from when the feature was on, is validated by its rules.
func TestStrategyInUse(t *testing.T) {
	old := &coordinationv1.Lease{}
	old.Spec.Strategy = ptr.To(coordinationv1.OldestEmulationVersion)
	for strategy, want := range map[coordinationv1.CoordinatedLeaseStrategy]string{
		coordinationv1.OldestEmulationVersion: "",
		"example.com/own":                     "",
		"Other":                               `spec.strategy.strategy: Unsupported value: "Other": supported values: "OldestEmulationVersion"`,
		"a/b/c": `spec.strategy.strategy: Invalid value: "a/b/c": a valid label key must consist of alphanumeric characters, '-', '_' or '.', ` +
			`and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is ` +
			`'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`,
	} {
		new := old.DeepCopy()
		new.Spec.Strategy, new.Spec.PreferredHolder = &strategy, ptr.To("x")
		keepStrategy(new, old)
		if new.Spec.PreferredHolder != nil {
			t.Error("preferredHolder was not in use")
		}
		if err := validateLease(new).ToAggregate(); (err != nil || want != "") && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v", strategy, err)
		}
	}
	holder := &coordinationv1.Lease{}
	holder.Spec.PreferredHolder = ptr.To("x")
	if errs := validateLease(holder); len(errs) != 1 || errs[0].Error() != "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined" {
		t.Error(errs)
	}
}
