package apiextensions

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"skiff/internal/catalog/catalogtest"
)

var update = flag.Bool("update", false, "write the answers of testdata/decide anew")

// TestDecide plays the stories in testdata/decide: definitions come and go, and each is decided beside all others. A story has steps, divided by
// blank lines: comments, a command, its input, ----, and the answer. With -update the answers are written anew.
//
//	definition                        adds or replaces a definition, with the defaults of the API; its status is kept
//	remove NAME                       removes one
//	decide NAME [installed]           decides one and prints its status; installed says that it is served
func TestDecide(t *testing.T) {
	files, err := filepath.Glob("testdata/decide/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories (%v)", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := playDecisions(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := catalogtest.Diff(string(text), got); diff != "" {
				t.Errorf("(- the story, + what was decided):\n%s", diff)
			}
		})
	}
}

// playDecisions returns a story with the answers of today.
func playDecisions(t *testing.T, story string) string {
	definitions := map[string]*definition{}
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	var out []string
	for _, step := range strings.Split(strings.TrimSpace(story), "\n\n") {
		now = metav1.NewTime(now.Add(time.Second))
		asked, _, ok := strings.Cut(step+"\n", "----\n")
		if !ok {
			t.Fatalf("a step without ----:\n%s", step)
		}
		lines := strings.Split(strings.TrimSpace(asked), "\n")
		for strings.HasPrefix(lines[0], "#") {
			lines = lines[1:]
		}
		words := append(strings.Fields(lines[0]), "", "")
		answer := ""
		switch words[0] {
		case "definition":
			define(t, definitions, strings.Join(lines[1:], "\n"))
		case "remove":
			delete(definitions, words[1])
		case "decide":
			answer = decideOne(t, definitions, words[1], words[2] == "installed", now)
		default:
			t.Fatalf("no such command: %s", lines[0])
		}
		out = append(out, asked+"----\n"+answer)
	}
	return strings.Join(out, "\n")
}

func define(t *testing.T, definitions map[string]*definition, text string) {
	t.Helper()
	d := &definition{}
	if err := yaml.UnmarshalStrict([]byte(text), d); err != nil {
		t.Fatal(err)
	}
	d.Name = d.Spec.Names.Plural + "." + d.Spec.Group
	setDefaults(d)
	if old := definitions[d.Name]; old != nil {
		d.Status = old.Status
	}
	definitions[d.Name] = d
}

func decideOne(t *testing.T, definitions map[string]*definition, name string, installed bool, now metav1.Time) string {
	one := definitions[name]
	before := one.DeepCopy()
	var others []*definition
	for _, other := range sortedKeys(definitions) {
		others = append(others, definitions[other])
	}
	status, changed := Decide(one, others, installed, now)
	if !equalStatus(before, one) {
		t.Errorf("Decide changed what it was given")
	}
	one.Status = status
	if again, changed := Decide(one, others, installed, metav1.NewTime(now.Add(time.Hour))); changed {
		t.Errorf("a second decision differs from the first: %+v", again)
	}
	if !changed {
		return "nothing changes\n"
	}
	var out strings.Builder
	n := status.AcceptedNames
	fmt.Fprintf(&out, "names plural=%s singular=%s kind=%s listKind=%s short=%s categories=%s\n", n.Plural, n.Singular, n.Kind, n.ListKind,
		strings.Join(n.ShortNames, ","), strings.Join(n.Categories, ","))
	for _, c := range status.Conditions {
		fmt.Fprintf(&out, "%s=%s %s since %s: %s\n", c.Type, c.Status, c.Reason, c.LastTransitionTime.UTC().Format("05"), c.Message)
	}
	return out.String()
}

func equalStatus(a, b *definition) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

func TestMarkTerminating(t *testing.T) {
	now := metav1.Now()
	zero := int64(0)
	d := &definition{ObjectMeta: metav1.ObjectMeta{Generation: 3, DeletionTimestamp: &now, DeletionGracePeriodSeconds: &zero, Finalizers: []string{"example.com/own"}}}
	d.Status.Conditions = []condition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	for range 2 { // deleting it again changes nothing
		markTerminating(d)
		if d.Generation != 2 || d.DeletionGracePeriodSeconds != nil {
			t.Errorf("generation %d and grace period %v, want 2 and none", d.Generation, d.DeletionGracePeriodSeconds)
		}
		if want := []string{"example.com/own", "customresourcecleanup.apiextensions.k8s.io"}; fmt.Sprint(d.Finalizers) != fmt.Sprint(want) {
			t.Errorf("finalizers %q, want %q", d.Finalizers, want)
		}
		c := apihelpers.FindCRDCondition(d, apiextensionsv1.Terminating)
		if len(d.Status.Conditions) != 2 || c == nil || c.Status != apiextensionsv1.ConditionTrue || c.Reason != "InstanceDeletionPending" {
			t.Errorf("conditions %+v", d.Status.Conditions)
		}
		d.DeletionGracePeriodSeconds = &zero
	}
}

func TestEstablishedColumn(t *testing.T) {
	d := &definition{}
	columns := CustomResourceDefinition.Info().Columns
	established := columns[len(columns)-1]
	for status, want := range map[apiextensionsv1.ConditionStatus]bool{apiextensionsv1.ConditionTrue: true, apiextensionsv1.ConditionFalse: false, "": false} {
		d.Status.Conditions = []condition{{Type: apiextensionsv1.Established, Status: status}}
		if got := established.Cell(d, time.Now()); got != want {
			t.Errorf("status %q: got %v, want %t", status, got, want)
		}
	}
}
