package apiextensions

import (
	"encoding/json"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"skiff/test/nonsense"
)

// judgeTime bounds how long a definition may take to be judged.
const judgeTime = 5 * time.Second

// FuzzDefinition judges definitions that were changed at random. None may make the judge panic, take long or report more than it bounds, and one that is valid
// must stay valid when it is defaulted again, and when it is written again as it is.
func FuzzDefinition(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed, uint8(seed%2))
	}
	f.Fuzz(func(t *testing.T, seed uint64, base uint8) {
		text := nonsense.New(seed).JSON(nonsense.Definitions[int(base)%len(nonsense.Definitions)])
		d := &definition{}
		if json.Unmarshal(text, d) != nil {
			return
		}
		start := time.Now()
		prepare(d)
		errs := validateCreate(d)
		size := 0
		for _, err := range errs {
			size += len(err.Error())
		}
		if took := time.Since(start); took > judgeTime || size > 8*longestReport {
			t.Fatalf("judged in %v with %d bytes: %.2000s", took, size, text)
		}
		if len(errs) > 0 {
			return
		}
		again := d.DeepCopy()
		prepare(again)
		if errs := validateCreate(again); len(errs) > 0 {
			t.Fatalf("valid once, and then not: %v\n%s", errs, text)
		}
		if errs := validateUpdate(again, d); len(errs) > 0 {
			t.Fatalf("the update that changes nothing is refused: %v\n%s", errs, text)
		}
	})
}

// prepare does what comes before the judgement of a new definition.
func prepare(d *definition) {
	setDefaults(d)
	d.Status.StoredVersions = nil
	canonicalize(&d.Spec)
	recordStorageVersion(d)
}

// FuzzRule judges rules of any text. None may make the judge panic or take long.
func FuzzRule(f *testing.F) {
	for _, rule := range []string{"true", "self.a.size() < 10", "self.list.all(x, self.list.all(y, self.list.all(z, x != y || y != z)))", "self.map.map(k, [k, k, k]).size() > 0", "self == oldSelf",
		"self.a.matches('(a+)+$')", "self.list.map(x, x + x + x).exists_one(x, x == self.a)", "oldSelf.hasValue()", "quantity(self.a).isGreaterThan(quantity('1'))", "self.a.replace('a', 'bb').replace('b', 'aa') == ''",
		"self.n / 0 == 1", "dyn(self).nothing", "[[[[[[1]]]]]].all(x, x == x)", "self.?a.orValue('') == ''", "cel.bind(x, self.list + self.list, x + x + x + x).size() > 0", "ip(self.a).family() == 4", "self.a.format([1])",
		"sets.contains(self.list, self.list)", "self.list.sortBy(x, x).join(',') == ''", "has(self.a) ? self.a : 1", "-9223372036854775808 - 1 < self.n", "'\\u0000' in self.map", "self.__a__"} {
		f.Add(rule, rule)
	}
	f.Fuzz(func(t *testing.T, rule, message string) {
		if len(rule)+len(message) > 4096 {
			return
		}
		d := widgets(t, ruled)
		d.Spec.Versions[0].Schema.OpenAPIV3Schema.XValidations = apiextensionsv1.ValidationRules{{Rule: rule}, {Rule: rule, MessageExpression: message, FieldPath: message},
			{Rule: "self.list.all(x, " + rule + ")", Message: message}}
		start := time.Now()
		prepare(d)
		if errs := validateCreate(d); time.Since(start) > judgeTime {
			t.Fatalf("%q took %v: %v", rule, time.Since(start), errs)
		}
	})
}

const ruled = `{type: object, properties: {a: {type: string}, n: {type: integer}, list: {type: array, maxItems: 20, items: {type: string, maxLength: 20}},
	map: {type: object, maxProperties: 20, additionalProperties: {type: string, maxLength: 20}}}}`
