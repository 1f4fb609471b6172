package schema

import (
	"context"
	"os"
	"regexp"
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/warning"
	"sigs.k8s.io/yaml"
)

// celGroup is a group of testdata/cel.yaml.
type celGroup struct {
	Schema apiextensionsv1.JSONSchemaProps `json:"schema"`
	Object map[string]any                  `json:"object"`
	Old    map[string]any                  `json:"old"`
	Root   bool                            `json:"root"`
	Budget *int64                          `json:"budget"`
	Limit  *uint64                         `json:"limit"`
	Cases  []struct {
		Rules    apiextensionsv1.ValidationRules `json:"rules"`
		Errors   []string                        `json:"errors"`
		Warnings []string                        `json:"warnings"`
		Cost     int64                           `json:"cost"`
	} `json:"cases"`
}

// TestRules evaluates the rules of upstream's own tests. Errors, warnings and costs must be upstream's.
func TestRules(t *testing.T) {
	cases := 0
	for _, g := range loadCELGroups(t) {
		for _, c := range g.Cases {
			cases++
			props := g.Schema
			props.XValidations = c.Rules
			errs, warnings, cost := evaluateGroup(t, &g, &props)
			for tries := 0; cost != c.Cost && tries < 50; tries++ { // exists and all walk maps in any order, and stop early
				errs, warnings, cost = evaluateGroup(t, &g, &props)
			}
			if !slices.Equal(errs, c.Errors) || !slices.Equal(warnings, c.Warnings) || cost != c.Cost {
				rules, _ := json.Marshal(c.Rules)
				t.Errorf("rules %s of %v:\ngot errors %q warnings %q cost %d\nwant errors %q warnings %q cost %d",
					rules, g.Object, errs, warnings, cost, c.Errors, c.Warnings, c.Cost)
			}
		}
	}
	if cases < 800 {
		t.Errorf("%d cases, more than 800 expected", cases)
	}
}

func loadCELGroups(t *testing.T) []celGroup {
	t.Helper()
	text, err := os.ReadFile("testdata/cel.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if text, err = yaml.YAMLToJSON(text); err != nil {
		t.Fatal(err)
	}
	var groups []celGroup
	if err := json.Unmarshal(text, &groups); err != nil {
		t.Fatal(err)
	}
	return groups
}

func evaluateGroup(t *testing.T, g *celGroup, props *apiextensionsv1.JSONSchemaProps) (errs, warnings []string, cost int64) {
	t.Helper()
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	budget, limit := int64(celconfig.RuntimeCELCostBudget), uint64(celconfig.PerCallLimit)
	if g.Budget != nil {
		budget = *g.Budget
	}
	if g.Limit != nil {
		limit = *g.Limit
	}
	r := newRuleBuilder(limit).buildAll(structural, g.Root)
	if r == nil {
		return nil, nil, 0
	}
	ch := &change{obj: g.Object, old: g.Old}
	recorder := &recordedWarnings{}
	refused, left := r.validate(warning.WithWarningRecorder(context.Background(), recorder), ch, budget)
	for _, err := range refused {
		errs = append(errs, selfTypes.ReplaceAllString(err.Error(), "selfType"))
	}
	slices.Sort(errs)
	slices.Sort(recorder.texts)
	return errs, recorder.texts, budget - left
}

// selfTypes matches names of types, which are numbered.
var selfTypes = regexp.MustCompile(`selfType[0-9]+`)

// recordedWarnings records warnings.
type recordedWarnings struct{ texts []string }

func (w *recordedWarnings) AddWarning(_, text string) { w.texts = append(w.texts, text) }
