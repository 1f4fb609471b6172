package coordination

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration { return []catalog.Declaration{Lease} }

var Lease = catalog.Resource[coordinationv1.Lease]{
	Group: "coordination.k8s.io", Version: "v1", Kind: "Lease", Plural: "leases", Namespaced: true,
	// Leases in other namespaces are written by whoever may edit there.
	Critical: func(l *coordinationv1.Lease) bool {
		return l.Namespace == corev1.NamespaceNodeLease || l.Namespace == metav1.NamespaceSystem
	},
	AnyFinalizer:   true,
	Name:           validation.NameIsDNSSubdomain,
	CreateOnUpdate: true, // without UnconditionalUpdate: a renewal must carry the observed resourceVersion
	PrepareCreate: func(l *coordinationv1.Lease, _ catalog.Request) {
		l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil
	},
	PrepareUpdate:  keepStrategy,
	Validate:       validateLease,
	ValidateUpdate: func(new, _ *coordinationv1.Lease) field.ErrorList { return validateLease(new) },
	Columns: []catalog.Column[coordinationv1.Lease]{
		catalog.NameColumn[coordinationv1.Lease](),
		{Name: "Holder", Description: coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"],
			Cell: func(l *coordinationv1.Lease, _ time.Time) any { return ptr.Deref(l.Spec.HolderIdentity, "") }},
		catalog.AgeColumn[coordinationv1.Lease](),
	},
	Complete: true,
}

// keepStrategy clears the fields of coordinated leader election, which is off by default, unless the old lease has them.
func keepStrategy(new, old *coordinationv1.Lease) {
	if old.Spec.Strategy == nil {
		new.Spec.Strategy = nil
	}
	if old.Spec.PreferredHolder == nil {
		new.Spec.PreferredHolder = nil
	}
}

func validateLease(l *coordinationv1.Lease) field.ErrorList {
	p, spec := check.At(field.NewPath("spec")), &l.Spec
	if d := spec.LeaseDurationSeconds; d != nil && *d <= 0 {
		p.Invalid("leaseDurationSeconds", *d, "must be greater than 0")
	}
	if n := spec.LeaseTransitions; n != nil && *n < 0 {
		p.Invalid("leaseTransitions", *n, "must be greater than or equal to 0")
	}
	if spec.Strategy != nil {
		validateStrategy(p.Child("strategy"), *spec.Strategy)
	}
	if ptr.Deref(spec.PreferredHolder, "") != "" && ptr.Deref(spec.Strategy, "") == "" {
		p.Forbidden("preferredHolder", "may only be specified if `strategy` is defined")
	}
	return p.Errors()
}

func validateStrategy(p *check.Part, s coordinationv1.CoordinatedLeaseStrategy) {
	if strings.Contains(string(s), "/") {
		for _, msg := range utilvalidation.IsQualifiedName(string(s)) {
			p.Invalid("strategy", s, msg)
		}
		return
	}
	own := []coordinationv1.CoordinatedLeaseStrategy{coordinationv1.OldestEmulationVersion}
	if !slices.Contains(own, s) {
		p.Add(field.NotSupported(p.Path("strategy"), s, own))
	}
}
