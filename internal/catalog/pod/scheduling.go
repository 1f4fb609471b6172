package pod

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

var (
	unsatisfiableActions = []corev1.UnsatisfiableConstraintAction{corev1.DoNotSchedule, corev1.ScheduleAnyway}
	inclusionPolicies    = []corev1.NodeInclusionPolicy{corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore}
	taintEffects         = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	tolerationOperators  = []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}
	comparingOperators   = []corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt}

	strictSelector = metav1validation.LabelSelectorValidationOptions{}
)

func (r *rules) schedulingGates(p *check.Part) {
	for i, gate := range r.spec.SchedulingGates {
		for _, msg := range utilvalidation.IsQualifiedName(gate.Name) {
			p.Add(field.Invalid(p.Path("schedulingGates").Index(i), gate.Name, msg))
		}
		if slices.Contains(r.spec.SchedulingGates[:i], gate) {
			p.Add(field.Duplicate(p.Path("schedulingGates").Index(i), gate.Name))
		}
	}
}

func (r *rules) tolerations(p *check.Part) {
	checkTolerations(p, "tolerations", r.spec.Tolerations, r.allow.comparingTolerations)
}

// ValidateTolerations validates a list of tolerations, such as those that a runtime class adds to its pods.
func ValidateTolerations(list []corev1.Toleration, path *field.Path) field.ErrorList {
	p := check.At(path)
	checkTolerations(p, "", list, false)
	return p.Errors()
}

func checkTolerations(p *check.Part, name string, list []corev1.Toleration, comparing bool) {
	for i := range list {
		t, at := &list[i], p.Item(name, i)
		if t.Key != "" {
			if !check.PlainKey(t.Key) {
				at.Format("key", t.Key, utilvalidation.IsQualifiedName)
			}
		} else if t.Operator != corev1.TolerationOpExists {
			at.Invalid("operator", t.Operator, "operator must be Exists when `key` is empty, which means \"match all values and all keys\"")
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			at.Invalid("effect", t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		tolerationValue(at, t, comparing)
		if t.Effect != "" {
			check.OneOf(at, "effect", t.Effect, taintEffects...)
		}
	}
}

func tolerationValue(p *check.Part, t *corev1.Toleration, comparing bool) {
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if msgs := utilvalidation.IsValidLabelValue(t.Value); len(msgs) > 0 {
			p.Invalid("operator", t.Value, strings.Join(msgs, ";"))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			p.Invalid("operator", t.Value, "value must be empty when `operator` is 'Exists'")
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		if !comparing {
			p.Add(field.NotSupported(p.Path("operator"), t.Operator, comparingOperators))
			return
		}
		p.Format("value", t.Value, content.IsDecimalInteger)
		if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
			p.Invalid("value", t.Value, err.Error())
		}
	default:
		p.Add(field.NotSupported(p.Path("operator"), t.Operator, tolerationOperators))
	}
}

func (r *rules) affinity(p *check.Part) {
	a := r.spec.Affinity
	if a == nil {
		return
	}
	p = p.Child("affinity")
	if a.NodeAffinity != nil {
		r.nodeAffinity(p.Child("nodeAffinity"), a.NodeAffinity)
	}
	required, preferred := affinityTerms(a)
	for i, kind := range [...]string{"podAffinity", "podAntiAffinity"} {
		at := p.Child(kind)
		for j := range required[i] {
			r.affinityTerm(at.Item("requiredDuringSchedulingIgnoredDuringExecution", j), &required[i][j])
		}
		for j := range preferred[i] {
			at := at.Item("preferredDuringSchedulingIgnoredDuringExecution", j)
			weight(at, preferred[i][j].Weight)
			r.affinityTerm(at.Child("podAffinityTerm"), &preferred[i][j].PodAffinityTerm)
		}
	}
}

func weight(p *check.Part, weight int32) {
	if weight <= 0 || weight > 100 {
		p.Invalid("weight", weight, "must be in the range 1-100")
	}
}

func (r *rules) affinityTerm(p *check.Part, t *corev1.PodAffinityTerm) {
	r.termSelectors(p, t)
	for _, name := range t.Namespaces {
		formatName(p, "namespace", name, validation.ValidateNamespaceName)
	}
	checkLabelKeys(p, t.MatchLabelKeys, t.MismatchLabelKeys, t.LabelSelector)
	p.Present("topologyKey", t.TopologyKey != "", "can not be empty")
	p.Format("topologyKey", t.TopologyKey, utilvalidation.IsQualifiedName)
}

func (r *rules) termSelectors(p *check.Part, t *corev1.PodAffinityTerm) {
	opts := metav1validation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: r.allow.affinitySelectorLabels}
	p.Selector("labelSelector", t.LabelSelector, opts)
	p.Selector("namespaceSelector", t.NamespaceSelector, opts)
}

// affinitySelectors validates only the selectors of pod affinity.
func (r *rules) affinitySelectors(p *check.Part) {
	required, preferred := affinityTerms(r.spec.Affinity)
	for i := range required {
		for j := range required[i] {
			r.termSelectors(p, &required[i][j])
		}
		for j := range preferred[i] {
			r.termSelectors(p, &preferred[i][j].PodAffinityTerm)
		}
	}
}

// checkLabelKeys validates keys whose values are taken from the pod's labels and merged into a selector.
func checkLabelKeys(p *check.Part, match, mismatch []string, selector *metav1.LabelSelector) {
	if len(match) == 0 && len(mismatch) == 0 {
		return
	}
	labelKeys(p, "matchLabelKeys", match, selector)
	labelKeys(p, "mismatchLabelKeys", mismatch, selector)
	if selector != nil {
		selectedTwice(p, match, selector)
	}
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			p.Add(field.Invalid(p.Path("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
}

func labelKeys(p *check.Part, name string, keys []string, selector *metav1.LabelSelector) {
	if len(keys) > 0 && selector == nil {
		p.Forbidden(name, "must not be specified when labelSelector is not set")
		return
	}
	for i, key := range keys {
		for _, msg := range utilvalidation.IsQualifiedName(key) {
			p.Add(field.Invalid(p.Path(name).Index(i), key, msg))
		}
	}
}

// selectedTwice refuses keys that the selector names besides the merged expression for the key.
func selectedTwice(p *check.Part, keys []string, selector *metav1.LabelSelector) {
	for n, e := range selector.MatchExpressions {
		i := len(keys) - 1 // the last of equal keys
		for i >= 0 && keys[i] != e.Key {
			i--
		}
		if i < 0 {
			continue
		}
		_, twice := selector.MatchLabels[e.Key]
		for _, before := range selector.MatchExpressions[:n] {
			twice = twice || before.Key == e.Key
		}
		if twice {
			p.Add(field.Invalid(p.Path().Index(i), e.Key, "exists in both matchLabelKeys and labelSelector"))
		}
	}
}

func (r *rules) topologySpread(p *check.Part) {
	list := r.spec.TopologySpreadConstraints
	for i := range list {
		c, at := &list[i], p.Item("topologySpreadConstraints", i)
		if c.MaxSkew <= 0 {
			at.Invalid("maxSkew", int64(c.MaxSkew), "must be greater than zero")
		}
		at.Present("topologyKey", c.TopologyKey != "", "can not be empty")
		check.OneOf(at, "whenUnsatisfiable", c.WhenUnsatisfiable, unsatisfiableActions...)
		for _, other := range list[i+1:] {
			if other.TopologyKey == c.TopologyKey && other.WhenUnsatisfiable == c.WhenUnsatisfiable {
				at.Add(field.Duplicate(at.Path("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", c.TopologyKey, c.WhenUnsatisfiable)))
				break
			}
		}
		minDomains(at, c)
		if c.NodeAffinityPolicy != nil {
			check.OneOf(at, "nodeAffinityPolicy", *c.NodeAffinityPolicy, inclusionPolicies...)
		}
		if c.NodeTaintsPolicy != nil {
			check.OneOf(at, "nodeTaintsPolicy", *c.NodeTaintsPolicy, inclusionPolicies...)
		}
		checkLabelKeys(at, c.MatchLabelKeys, nil, c.LabelSelector)
		if !r.allow.spreadSelectors {
			at.Selector("labelSelector", c.LabelSelector, strictSelector)
		}
	}
}

func minDomains(p *check.Part, c *corev1.TopologySpreadConstraint) {
	if c.MinDomains == nil {
		return
	}
	if *c.MinDomains <= 0 {
		p.Invalid("minDomains", int64(*c.MinDomains), "must be greater than zero")
	}
	if c.WhenUnsatisfiable != corev1.DoNotSchedule {
		p.Invalid("minDomains", c.MinDomains, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, c.WhenUnsatisfiable))
	}
}

// checkLabels validates labels, in the order of their keys.
func checkLabels(p *check.Part, name string, labels map[string]string) {
	if len(labels) == 0 {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		p.Format(name, key, utilvalidation.IsQualifiedName)
		p.Format(name, labels[key], utilvalidation.IsValidLabelValue)
	}
}
