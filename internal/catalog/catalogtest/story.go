package catalogtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Namespace is the namespace of a story's namespaced objects.
const Namespace = "story"

// Step is one request of a story.
type Step struct {
	Verb        string // create or update
	Subresource string
	Remark      string
	Body        map[string]any // the object, or the merge patch
}

// Object returns the step's body as an object, for its kind, name and apiVersion.
func (s Step) Object() *unstructured.Unstructured { return &unstructured.Unstructured{Object: s.Body} }

// Title returns the name of the step in golden files and failures.
func (s Step) Title() string {
	o := s.Object()
	title := strings.TrimSpace(s.Verb + " " + s.Subresource)
	title += " " + o.GetKind() + "/" + o.GetName() + o.GetGenerateName()
	if s.Remark != "" {
		title += ": " + s.Remark
	}
	return title
}

// Answer is the response to a step.
type Answer struct {
	Step     string         `json:"step"`
	Error    string         `json:"error,omitempty"` // code, reason and message
	Object   map[string]any `json:"object,omitempty"`
	Warnings []string       `json:"warnings,omitempty"`
	Columns  []string       `json:"columns,omitempty"` // name type format priority
	Cells    []string       `json:"cells,omitempty"`
}

// Load reads a story.
func Load(file string) ([]Step, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var steps []Step
	for i, doc := range bytes.Split(append([]byte("\n"), data...), []byte("\n---\n")) {
		doc = bytes.TrimSpace(doc)
		doc = bytes.TrimSpace(bytes.TrimPrefix(doc, []byte("---\n")))
		if len(doc) == 0 {
			continue
		}
		head, _, _ := strings.Cut(string(doc), "\n")
		verb, ok := strings.CutPrefix(head, "# ")
		if !ok {
			return nil, fmt.Errorf("%s: document %d does not begin with a comment line that says what to do", file, i+1)
		}
		verb, remark, _ := strings.Cut(verb, ":")
		step := Step{Remark: strings.TrimSpace(remark)}
		step.Verb, step.Subresource, _ = strings.Cut(strings.TrimSpace(verb), " ")
		if step.Verb != "create" && step.Verb != "update" {
			return nil, fmt.Errorf("%s: document %d: no such verb %q", file, i+1, step.Verb)
		}
		asJSON, err := yaml.YAMLToJSON(doc)
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", file, i+1, err)
		}
		if err := json.Unmarshal(asJSON, &step.Body); err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", file, i+1, err)
		}
		if step.Object().GetKind() == "" {
			return nil, fmt.Errorf("%s: document %d has no kind", file, i+1)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// Golden returns the name of the file that holds a story's answers.
func Golden(file string) string { return strings.TrimSuffix(file, ".yaml") + ".golden" }

// anyUID matches a generated uid, which may also be in labels and messages.
var anyUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

const noUID = "00000000-0000-0000-0000-000000000000"

// Render formats answers as a golden file.
func Render(answers []Answer) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# Recorded from upstream by `go run ./test/record`. Do not edit.\n")
	for _, a := range answers {
		doc, err := yaml.Marshal(a)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(anyUID.ReplaceAll(doc, []byte(noUID)))
	}
	return out.Bytes(), nil
}

// Normalize removes the parts of an object that differ from run to run.
func Normalize(obj map[string]any) map[string]any {
	u := &unstructured.Unstructured{Object: obj}
	u.SetUID("")
	u.SetResourceVersion("")
	u.SetManagedFields(nil)
	unstructured.RemoveNestedField(obj, "metadata", "creationTimestamp")
	if u.GetGenerateName() != "" {
		u.SetName("")
	}
	return obj
}

// Collection returns the path of the collection of a kind, in the stories' namespace if the kind is namespaced.
func Collection(mapper meta.RESTMapper, gvk schema.GroupVersionKind) (string, error) {
	m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return "", err
	}
	root := "/api/" + gvk.Version
	if gvk.Group != "" {
		root = "/apis/" + gvk.Group + "/" + gvk.Version
	}
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		root += "/namespaces/" + Namespace
	}
	return root + "/" + m.Resource.Resource, nil
}

// Describe formats a failure.
func Describe(s metav1.Status) string {
	return fmt.Sprintf("%d %s: %s", s.Code, s.Reason, s.Message)
}

// later stands for what loops within upstream's server write while the story goes on.
const later = "<later>"

// Cell formats a cell of a table; cells that depend on the time, or on when upstream's loops run, are not compared.
func Cell(column string, v any) string {
	switch column {
	case "Age", "Created At", "Last Seen", "First Seen", "Duration", "TimeAdded":
		return "<time>"
	case "Established":
		return later
	case "Available":
		if _, isCondition := v.(string); isCondition { // of an API service; of workloads it is a number
			return later
		}
	}
	return fmt.Sprint(v)
}

// Column formats a column's definition.
func Column(c metav1.TableColumnDefinition) string {
	return fmt.Sprintf("%s|%s|%s|%d|%s", c.Name, c.Type, c.Format, c.Priority, c.Description)
}
