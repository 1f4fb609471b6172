package schema

import (
	"reflect"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

func TestGeneration(t *testing.T) {
	const old = "{metadata: {name: a, labels: {x: z}}, spec: {a: 1}, status: {b: 1}}"
	for _, c := range []struct {
		name, obj           string
		changed, withStatus bool
	}{
		{"nothing", old, false, false},
		{"metadata", "{metadata: {name: a}, spec: {a: 1}, status: {b: 1}}", false, false},
		{"spec", "{metadata: {name: a}, spec: {a: 2}, status: {b: 1}}", true, true},
		{"status", "{metadata: {name: a}, spec: {a: 1}, status: {b: 2}}", true, false},
		{"no status", "{metadata: {name: a}, spec: {a: 1}}", true, false},
		{"no spec", "{metadata: {name: a}, status: {b: 1}}", true, true},
		{"another field", "{spec: {a: 1}, status: {b: 1}, data: {}}", true, true},
	} {
		if got := GenerationChanged(object(t, c.obj), object(t, old), false); got != c.changed {
			t.Errorf("%s: %v", c.name, got)
		}
		if got := GenerationChanged(object(t, c.obj), object(t, old), true); got != c.withStatus {
			t.Errorf("%s, with the status subresource: %v", c.name, got)
		}
	}
}

func TestStatus(t *testing.T) {
	obj := object(t, "{spec: {a: 1}, status: {b: 1}}")
	DropStatus(obj)
	if want := object(t, "{spec: {a: 1}}"); !reflect.DeepEqual(obj, want) {
		t.Errorf("dropped: %v", obj)
	}
	CopyStatus(obj, object(t, "{status: {b: 2}}"))
	if want := object(t, "{spec: {a: 1}, status: {b: 2}}"); !reflect.DeepEqual(obj, want) {
		t.Errorf("copied: %v", obj)
	}
	CopyStatus(obj, object(t, "{spec: {a: 3}}"))
	if want := object(t, "{spec: {a: 1}}"); !reflect.DeepEqual(obj, want) {
		t.Errorf("copied none: %v", obj)
	}
	obj = object(t, "{spec: {a: 1}, more: 1, status: {b: 1}, metadata: {name: new}}")
	KeepAllButStatus(obj, object(t, "{spec: {a: 2}, status: {b: 2}, data: 1, metadata: {name: old}}"))
	if want := object(t, "{spec: {a: 2}, data: 1, status: {b: 1}, metadata: {name: new}}"); !reflect.DeepEqual(obj, want) {
		t.Errorf("kept: %v", obj)
	}
}

func TestWarnings(t *testing.T) {
	got := Warnings([]string{"orphan", "unqualified", "domain.org", "example.com/ok", "kubernetes", "a b", "old", "unqualified"}, []string{"old"})
	want := []string{
		`metadata.finalizers: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
		`metadata.finalizers: "a b": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers`,
		`metadata.finalizers: "domain.org": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers`,
		`metadata.finalizers: "unqualified": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", lines(got), lines(want))
	}
}

func TestObjectMeta(t *testing.T) {
	meta, unknown, err := ObjectMeta(object(t, "{metadata: {name: a, foo: b, labels: {x: z}}}"), true)
	if err != nil || meta.Name != "a" || meta.Labels["x"] != "z" || !slices.Equal(unknown, []string{"metadata.foo"}) {
		t.Errorf("%v, unknown %v, error %v", meta, unknown, err)
	}
	if _, _, err := ObjectMeta(object(t, "{metadata: {name: {}}}"), true); err == nil {
		t.Error("metadata that cannot be decoded: no error")
	}
}

func scale() *apiextensionsv1.CustomResourceSubresourceScale {
	return &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.ready", LabelSelectorPath: ptr.To(".status.selector")}
}

func TestScale(t *testing.T) {
	p := NewScalePaths(scale())
	obj := object(t, "{spec: {replicas: 3}, status: {ready: 2, selector: a=b}}")
	got, found, err := p.Scale(obj)
	if err != nil || !found || got.Spec.Replicas != 3 || got.Status.Replicas != 2 || got.Status.Selector != "a=b" || got.Kind != "Scale" {
		t.Errorf("%v, found %v, error %v", got, found, err)
	}
	if err := p.SetReplicas(obj, 5); err != nil || obj["spec"].(map[string]any)["replicas"] != int64(5) {
		t.Errorf("%v, error %v", obj, err)
	}
	if got, found, err = p.Scale(object(t, "{spec: {}}")); err != nil || found || got.Spec.Replicas != 0 || got.Status.Selector != "" {
		t.Errorf("without replicas: %v, found %v, error %v", got, found, err)
	}
	if got, want := p.ErrMissing().Error(), `the spec replicas field ".spec.replicas" does not exist`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := p.ErrEmpty().Error(), `the spec replicas field ".spec.replicas" cannot be empty`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, text := range []string{"{spec: {replicas: x}}", "{status: {ready: 1.5}}", "{status: {selector: {}}}", "{spec: x}"} {
		if _, _, err := p.Scale(object(t, text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
	if err := p.SetReplicas(object(t, "{spec: x}"), 1); err == nil {
		t.Error("set replicas below a text: no error")
	}
}

func TestValidateScale(t *testing.T) {
	for _, c := range []struct{ obj, want string }{
		{"{spec: {replicas: 3}, status: {ready: 2, selector: a=b}}", ""},
		{"{}", ""},
		{"{spec: {replicas: -1}, status: {ready: -2}}", ".spec.replicas: Invalid value: -1: should be a non-negative integer\n.status.ready: Invalid value: -2: should be a non-negative integer"},
		{"{spec: {replicas: 2147483648}}", ".spec.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647"},
		{"{spec: {replicas: x}}", `.spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64`},
		{"{status: {selector: 1}}", `.status.selector: Invalid value: "": .status.selector accessor error: 1 is of the type int64, expected string`},
	} {
		if got := texts(ValidateScale(scale(), object(t, c.obj))); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.obj, got, c.want)
		}
	}
	crd := withStatus(definition(t, "{type: object, x-kubernetes-preserve-unknown-fields: true}"))
	crd.Spec.Versions[0].Subresources.Scale = scale()
	s := New(crd, "v1")
	obj := object(t, "{spec: {replicas: -1}, status: {ready: -2}}")
	spec, status := ".spec.replicas: Invalid value: -1: should be a non-negative integer", ".status.ready: Invalid value: -2: should be a non-negative integer"
	if got := texts(s.Validate(t.Context(), obj)); got != spec+"\n"+status {
		t.Errorf("create: %s", got)
	}
	if got := texts(s.ValidateUpdate(t.Context(), obj, obj)); got != spec+"\n"+status {
		t.Errorf("update: %s", got)
	}
	if got := texts(s.ValidateStatusUpdate(t.Context(), obj, obj)); got != status {
		t.Errorf("status update: %s", got)
	}
}

func TestColumns(t *testing.T) {
	crd := definition(t, "")
	column := func(name, valueType, path string) apiextensionsv1.CustomResourceColumnDefinition {
		return apiextensionsv1.CustomResourceColumnDefinition{Name: name, Type: valueType, JSONPath: path}
	}
	crd.Spec.Versions[0].AdditionalPrinterColumns = []apiextensionsv1.CustomResourceColumnDefinition{
		column("Text", "string", ".spec.text"), column("Object", "string", ".spec.object"), column("Count", "integer", ".spec.count"),
		column("Float", "integer", ".spec.float"), column("Number", "number", ".spec.count"), column("Yes", "boolean", ".spec.ok"),
		column("Wrong", "boolean", ".spec.text"), column("Missing", "string", ".spec.none.of.this"), column("Null", "string", ".spec.null"),
		column("Filter", "string", `.spec.list[?(@.name=="b")].value`), column("First", "integer", ".spec.list[*].count"),
		column("Age", "date", ".metadata.creationTimestamp"), column("Bad", "date", ".spec.text"), column("Number date", "date", ".spec.count"),
		column("Label", "string", `.metadata.labels.example\.com/a`),
	}
	columns, err := New(crd, "v1").Columns()
	if err != nil {
		t.Fatal(err)
	}
	obj := object(t, `{metadata: {name: a, creationTimestamp: "2020-01-01T00:00:00Z", labels: {example.com/a: b}}, spec: {text: t, object: {a: [1]}, count: 3, float: 2.7,
		ok: true, "null": null, list: [{name: a, value: v, count: 7}, {name: b, value: w}]}}`)
	now := time.Date(2020, 1, 1, 1, 30, 0, 0, time.UTC)
	want := []any{"a", "t", `{"a":[1]}`, int64(3), int64(2), float64(3), true, nil, nil, "<no value>", "w", int64(7), "90m", "<invalid>", nil, "b"}
	if got := columns.Cells(obj, now); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
	if d := columns.Definitions[1]; d.Name != "Text" || d.Description != "Custom resource definition column (in JSONPath format): .spec.text" {
		t.Errorf("definition %v", d)
	}
	if !columns.Timed(12) || columns.Timed(11) || columns.Timed(0) {
		t.Error("only dates depend on the time")
	}
	if date, ok := columns.Date(12, obj); !ok || !date.Time.Equal(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("date %v, %v", date, ok)
	}
	if _, ok := columns.Date(13, obj); ok {
		t.Error("an invalid date does not depend on the time")
	}
}

// TestDefaultColumns shows that a version without columns shows the age, and that columns end before the first path that does not parse.
func TestDefaultColumns(t *testing.T) {
	for _, c := range []struct {
		columns []apiextensionsv1.CustomResourceColumnDefinition
		want    []string
	}{
		{nil, []string{"Name", "Age"}},
		{[]apiextensionsv1.CustomResourceColumnDefinition{{Name: "A", JSONPath: ".a"}, {Name: "B", JSONPath: ".b[0"}, {Name: "C", JSONPath: ".c"}}, []string{"Name", "A"}},
	} {
		var got []string
		for _, d := range newColumns(c.columns).Definitions {
			got = append(got, d.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("got %v, want %v", got, c.want)
		}
	}
}

func TestSelectableFields(t *testing.T) {
	crd := definition(t, "")
	for _, path := range []string{".spec.text", ".spec.count", ".spec.ok", ".spec.none", ".spec.with-dash", ".spec.list[*]"} {
		crd.Spec.Versions[0].SelectableFields = append(crd.Spec.Versions[0].SelectableFields, apiextensionsv1.SelectableField{JSONPath: path})
	}
	fields, err := New(crd, "v1").SelectableFields()
	if err != nil {
		t.Fatal(err)
	}
	obj := object(t, "{spec: {text: t, count: 3, ok: true, with-dash: d, list: [1, 2]}}")
	for i, want := range []string{"t", "3", "true", "", "d"} {
		if got, err := fields[i].Value(obj); got != want || err != nil {
			t.Errorf("%s is %q, want %q, error %v", fields[i].Name, got, want, err)
		}
	}
	if _, err := fields[5].Value(obj); err == nil || err.Error() != "unexpectedly received more than one JSON path result" {
		t.Errorf("two results: error %v", err)
	}
}

// TestPlainPath shows that looking up a plain path finds what the parser finds.
func TestPlainPath(t *testing.T) {
	for _, text := range []string{"{}", "{a: null}", "{a: 1}", "{a: {b: null}}", "{a: {b: text}}", "{a: {b: 1.5}}", "{a: {b: {c: 1}}}", "{a: [{b: 1}]}", "{a: text}", "{a: {b: [1]}}", "{a: {}}"} {
		obj := object(t, text)
		for _, source := range []string{".a", ".a.b", ".a.b.c"} {
			p, err := newPath(source)
			if err != nil || p.plain == nil {
				t.Fatalf("%s: plain %v, error %v", source, p.plain, err)
			}
			value, found, err := p.first(obj)
			parsed, parsedFound, _, parsedErr := p.find(obj)
			if !reflect.DeepEqual(value, parsed) || found != parsedFound || err != nil || parsedErr != nil {
				t.Errorf("%s of %s: %v (%v), the parser finds %v (%v), errors %v and %v", source, text, value, found, parsed, parsedFound, err, parsedErr)
			}
		}
	}
}

// TestUniqueNumbers shows that 1 and 1.0 are the same key of a list of type map, if it has several keys, as upstream encodes them then.
func TestUniqueNumbers(t *testing.T) {
	for _, keys := range []string{"[k]", "[k, m]"} {
		crd := definition(t, `{type: object, properties: {list: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: `+keys+`,
			items: {type: object, properties: {k: {type: number}, m: {type: number}}}}}}`)
		obj := object(t, "{}")
		obj["list"] = []any{map[string]any{"k": int64(1)}, map[string]any{"k": float64(1)}}
		want, _ := newOracle(t, crd).validate(obj, nil, false)
		if got := sortedTexts(New(crd, "v1").Validate(t.Context(), obj)); !slices.Equal(got, want) {
			t.Errorf("keys %s: got %q, want %q", keys, got, want)
		}
		if (keys == "[k, m]") != (len(want) > 0) {
			t.Errorf("keys %s: upstream says %q", keys, want)
		}
	}
}
