package flowcontrol

import (
	"fmt"
	"math"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// PriorityLevelConfiguration declares priority levels, which have a share of the server and a queue or a limit for requests beyond it.
var PriorityLevelConfiguration = catalog.Resource[flowcontrolv1.PriorityLevelConfiguration]{
	Group: group, Version: version, Kind: "PriorityLevelConfiguration", Plural: "prioritylevelconfigurations",
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultLevel,
	Changed:             catalog.SpecChanged[flowcontrolv1.PriorityLevelConfiguration],
	Validate:            validateLevel,
	ValidateUpdate:      func(new, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList { return validateLevel(new) },
	Status: &catalog.Edit[flowcontrolv1.PriorityLevelConfiguration]{
		PrepareUpdate: func(new, old *flowcontrolv1.PriorityLevelConfiguration) { keepMeta(&new.ObjectMeta, &old.ObjectMeta) },
		ValidateUpdate: func(new, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
			at := check.At(field.NewPath("status"))
			checkConditions(at, new.Status.Conditions, levelCondition)
			return at.Errors()
		},
		ResetFields: []string{"metadata"},
	},
	Columns:  levelColumns,
	Complete: true,
}

func defaultLevel(l *flowcontrolv1.PriorityLevelConfiguration) {
	if limited := l.Spec.Limited; limited != nil {
		fill(&limited.NominalConcurrencyShares, 30)
		fill(&limited.LendablePercent, 0)
		if q := limited.LimitResponse.Queuing; q != nil {
			fillInt(&q.HandSize, 8)
			fillInt(&q.Queues, 64)
			fillInt(&q.QueueLengthLimit, 50)
		}
	}
	if exempt := l.Spec.Exempt; exempt != nil {
		fill(&exempt.NominalConcurrencyShares, 0)
		fill(&exempt.LendablePercent, 0)
	}
}

func fill(field **int32, value int32) {
	if *field == nil {
		v := value // so that the parameter itself need not escape
		*field = &v
	}
}

func fillInt(field *int32, value int32) {
	if *field == 0 {
		*field = value
	}
}

// preserveZero is an annotation that only an older version of the API uses.
const preserveZero = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"

func validateLevel(l *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	at := check.At(nil)
	if _, used := l.Annotations[preserveZero]; used {
		at.Child("metadata").Forbidden("annotations", fmt.Sprintf("annotation '%s' is forbidden", preserveZero))
	}
	spec := at.Child("spec")
	if (l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (l.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		spec.Invalid("type", l.Spec.Type, "must be 'Exempt' if and only if `name` is 'exempt'")
	}
	switch l.Spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		checkExempt(spec.Child("exempt"), l.Spec.Exempt)
	case flowcontrolv1.PriorityLevelEnablementLimited:
		checkLimited(spec.Child("limited"), l.Spec.Limited)
	case "":
	default:
		check.OneOf(spec, "type", l.Spec.Type, flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited)
	}
	checkMandatoryLevel(at, l)
	checkConditions(at.Child("status"), l.Status.Conditions, levelCondition)
	checkUnions(spec, &l.Spec)
	return at.Errors()
}

// checkUnions requires the member that a type names, and no other. These errors come last.
func checkUnions(at *check.Part, s *flowcontrolv1.PriorityLevelConfigurationSpec) {
	if s.Exempt != nil && s.Type != flowcontrolv1.PriorityLevelEnablementExempt {
		at.Forbidden("exempt", "")
	}
	limited := s.Type == flowcontrolv1.PriorityLevelEnablementLimited
	if s.Limited != nil && !limited {
		at.Forbidden("limited", "")
	}
	at.Present("limited", s.Limited != nil || !limited, "")
	at.Present("type", s.Type != "", "")
	if s.Limited == nil {
		return
	}
	r, at := &s.Limited.LimitResponse, at.Child("limited").Child("limitResponse")
	queue := r.Type == flowcontrolv1.LimitResponseTypeQueue
	if r.Queuing != nil && !queue {
		at.Forbidden("queuing", "")
	}
	at.Present("queuing", r.Queuing != nil || !queue, "")
	at.Present("type", r.Type != "", "")
}

func checkExempt(at *check.Part, e *flowcontrolv1.ExemptPriorityLevelConfiguration) {
	if e == nil {
		return
	}
	checkShares(at, e.NominalConcurrencyShares)
	checkLendable(at, e.LendablePercent)
}

func checkLimited(at *check.Part, l *flowcontrolv1.LimitedPriorityLevelConfiguration) {
	if l == nil {
		return
	}
	checkShares(at, l.NominalConcurrencyShares)
	response := at.Child("limitResponse")
	switch r := l.LimitResponse; r.Type {
	case flowcontrolv1.LimitResponseTypeQueue:
		checkQueuing(response.Child("queuing"), r.Queuing)
	case flowcontrolv1.LimitResponseTypeReject, "":
	default:
		check.OneOf(response, "type", r.Type, flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)
	}
	checkLendable(at, l.LendablePercent)
	if b := l.BorrowingLimitPercent; b != nil && *b < 0 {
		at.Invalid("borrowingLimitPercent", *b, "if specified, must be a non-negative integer")
	}
}

func checkShares(at *check.Part, shares *int32) {
	if shares != nil && *shares < 0 {
		at.Invalid("nominalConcurrencyShares", *shares, "must be a non-negative integer")
	}
}

func checkLendable(at *check.Part, percent *int32) {
	if percent != nil && (*percent < 0 || *percent > 100) {
		at.Invalid("lendablePercent", *percent, "must be between 0 and 100, inclusive")
	}
}

const (
	maxQueues  = 10_000_000
	maxEntropy = 60 // bits of a flow's hash that can choose its hand of queues
)

func checkQueuing(at *check.Part, q *flowcontrolv1.QueuingConfiguration) {
	if q == nil {
		return
	}
	if q.QueueLengthLimit <= 0 {
		at.Invalid("queueLengthLimit", q.QueueLengthLimit, "must be positive")
	}
	switch {
	case q.Queues <= 0:
		at.Invalid("queues", q.Queues, "must be positive")
	case q.Queues > maxQueues:
		at.Invalid("queues", q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues))
	}
	switch {
	case q.HandSize <= 0:
		at.Invalid("handSize", q.HandSize, "must be positive")
	case q.HandSize > q.Queues:
		at.Invalid("handSize", q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues))
	case math.Ceil(math.Log2(float64(q.Queues))*float64(q.HandSize)) > maxEntropy:
		at.Invalid("handSize", q.HandSize, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, maxEntropy))
	}
}

// checkMandatoryLevel refuses changes of the mandatory levels, except of spec.exempt of the exempt level.
func checkMandatoryLevel(at *check.Part, l *flowcontrolv1.PriorityLevelConfiguration) {
	fixed := mandatoryLevel(l.Name)
	if fixed == nil {
		return
	}
	want, except := fixed.Spec, ""
	if l.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
		want.Exempt, except = l.Spec.Exempt, " except the 'spec.exempt' field"
	}
	if !apiequality.Semantic.DeepEqual(l.Spec, want) {
		at.Invalid("spec", check.Internal(l.Spec), fmt.Sprintf("spec of '%s'%s must equal the fixed value", l.Name, except))
	}
}

var queuingDoc = flowcontrolv1.QueuingConfiguration{}.SwaggerDoc()

var levelColumns = []catalog.Column[flowcontrolv1.PriorityLevelConfiguration]{
	catalog.NameColumn[flowcontrolv1.PriorityLevelConfiguration](),
	{Name: "Type", Description: flowcontrolv1.PriorityLevelConfigurationSpec{}.SwaggerDoc()["type"], Cell: func(l *flowcontrolv1.PriorityLevelConfiguration, _ time.Time) any {
		return string(l.Spec.Type)
	}},
	{Name: "NominalConcurrencyShares", Description: flowcontrolv1.LimitedPriorityLevelConfiguration{}.SwaggerDoc()["nominalConcurrencyShares"], Cell: func(l *flowcontrolv1.PriorityLevelConfiguration, _ time.Time) any {
		if l.Spec.Limited == nil || l.Spec.Limited.NominalConcurrencyShares == nil {
			return "<none>"
		}
		return *l.Spec.Limited.NominalConcurrencyShares
	}},
	queuingColumn("Queues", "queues", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.Queues }),
	queuingColumn("HandSize", "handSize", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.HandSize }),
	queuingColumn("QueueLengthLimit", "queueLengthLimit", func(q *flowcontrolv1.QueuingConfiguration) int32 { return q.QueueLengthLimit }),
	catalog.AgeColumn[flowcontrolv1.PriorityLevelConfiguration](),
}

func queuingColumn(name, field string, value func(*flowcontrolv1.QueuingConfiguration) int32) catalog.Column[flowcontrolv1.PriorityLevelConfiguration] {
	return catalog.Column[flowcontrolv1.PriorityLevelConfiguration]{Name: name, Description: queuingDoc[field],
		Cell: func(l *flowcontrolv1.PriorityLevelConfiguration, _ time.Time) any {
			if l.Spec.Limited == nil || l.Spec.Limited.LimitResponse.Queuing == nil {
				return "<none>"
			}
			return value(l.Spec.Limited.LimitResponse.Queuing)
		}}
}
