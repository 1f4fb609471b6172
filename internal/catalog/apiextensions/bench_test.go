package apiextensions

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skiff/internal/catalog"
)

// largeSchema returns a schema of about the given size, in the manner of those that are generated from Go types.
func largeSchema(size int, rules bool) string {
	var b strings.Builder
	b.WriteString("type: object\nproperties:\n  spec:\n    type: object\n    properties:\n")
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "      field%04d:\n        type: object\n        description: %s\n        required: [name]\n", i, strings.Repeat("what it is for and what it does ", 12))
		if rules && i%100 == 0 {
			b.WriteString("        x-kubernetes-validations: [{rule: 'self.name == oldSelf.name', message: is immutable}]\n")
		}
		b.WriteString("        properties:\n")
		fmt.Fprintf(&b, "          name: {type: string, minLength: 1, maxLength: 63, description: %q}\n", strings.Repeat("of the thing ", 20))
		b.WriteString("          ports: {type: array, maxItems: 10, items: {type: object, required: [port], properties: {port: {type: integer, format: int32}, protocol: {type: string, default: TCP}}}, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [port]}\n")
		b.WriteString("          labels: {type: object, additionalProperties: {type: string}}\n")
	}
	return b.String()
}

// BenchmarkCreate is what the declaration does when a definition is created: defaults, preparation, validation and warnings.
func BenchmarkCreate(b *testing.B) {
	info := CustomResourceDefinition.Info()
	for _, size := range []struct {
		name  string
		bytes int
		rules bool
	}{{"8kB", 8 << 10, false}, {"100kB", 100 << 10, false}, {"1MB", 1 << 20, false}, {"1MB with rules", 1 << 20, true}} {
		d := widgets(b, largeSchema(size.bytes, size.rules))
		b.Run(size.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				obj := d.DeepCopy()
				info.Default(obj)
				if errs := info.BeforeCreate(obj, catalog.Request{Now: time.Unix(0, 0)}); len(errs) > 0 {
					b.Fatal(errs)
				}
				info.Warnings(obj, nil)
			}
		})
	}
}

// BenchmarkUpdate is what the declaration does when the labels of a definition change.
func BenchmarkUpdate(b *testing.B) {
	info := CustomResourceDefinition.Info()
	for _, rules := range []bool{false, true} {
		old := widgets(b, largeSchema(1<<20, rules))
		old.ResourceVersion, old.UID = "1", "u"
		b.Run(fmt.Sprintf("1MB rules=%t", rules), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				obj := old.DeepCopy()
				obj.Labels = map[string]string{"a": "b"}
				if errs := info.BeforeUpdate(b.Context(), obj, old, nil); len(errs) > 0 {
					b.Fatal(errs)
				}
				info.Warnings(obj, old)
			}
		})
	}
}
