package schema

import (
	"context"
	"fmt"
	"runtime"
	"testing"
)

// BenchmarkCreate is what a create does beside decoding: prune, default and validate.
func BenchmarkCreate(b *testing.B) {
	for _, c := range []struct {
		name  string
		rules bool
	}{{"types", false}, {"20rules", true}} {
		b.Run(c.name, func(b *testing.B) {
			s := New(definition(b, twentyRules(c.rules)), "v1")
			obj := object(b, typicalObject)
			b.ReportAllocs()
			for b.Loop() {
				process(b, s, obj)
				if errs := s.Validate(context.Background(), obj); len(errs) > 0 {
					b.Fatal(errs)
				}
			}
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, c := range []struct {
		name  string
		rules bool
	}{{"types", false}, {"20rules", true}} {
		b.Run(c.name, func(b *testing.B) {
			s := New(definition(b, twentyRules(c.rules)), "v1")
			old, obj := object(b, typicalObject), object(b, typicalObject)
			obj["spec"].(map[string]any)["replicas"] = int64(5)
			process(b, s, old)
			b.ReportAllocs()
			for b.Loop() {
				process(b, s, obj)
				if errs := s.ValidateUpdate(context.Background(), obj, old); len(errs) > 0 {
					b.Fatal(errs)
				}
			}
		})
	}
}

// BenchmarkUpdateUpstream is the validation of BenchmarkUpdate/20rules with upstream's libraries.
func BenchmarkUpdateUpstream(b *testing.B) {
	o := newOracle(b, definition(b, twentyRules(true)))
	old, obj := object(b, typicalObject), object(b, typicalObject)
	obj["spec"].(map[string]any)["replicas"] = int64(5)
	b.ReportAllocs()
	for b.Loop() {
		if errs, _ := o.validate(obj, old, false); len(errs) > 0 {
			b.Fatal(errs)
		}
	}
}

// TestUpdateAllocates bounds the garbage of an update with 20 rules. Upstream makes several times as much.
func TestUpdateAllocates(t *testing.T) {
	s := New(definition(t, twentyRules(true)), "v1")
	old, obj := object(t, typicalObject), object(t, typicalObject)
	got := testing.AllocsPerRun(20, func() {
		if errs := s.ValidateUpdate(t.Context(), obj, old); len(errs) > 0 {
			t.Fatal(errs)
		}
	})
	if got > 900 {
		t.Errorf("%v allocations, want 900 at most", got)
	}
}

func BenchmarkInvalid(b *testing.B) {
	s := New(definition(b, twentyRules(true)), "v1")
	obj := object(b, typicalObject)
	obj["spec"].(map[string]any)["replicas"] = int64(-5)
	b.ReportAllocs()
	for b.Loop() {
		if errs := s.Validate(context.Background(), obj); len(errs) == 0 {
			b.Fatal("no error")
		}
	}
}

func BenchmarkPrune(b *testing.B) {
	s, obj := New(definition(b, twentyRules(false)), "v1"), object(b, typicalObject)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Prune(obj, false); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDefault(b *testing.B) {
	s, obj := New(definition(b, twentyRules(false)), "v1"), object(b, typicalObject)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Default(obj); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompile measures the first use of a schema, and what a schema holds before and after.
func BenchmarkCompile(b *testing.B) {
	fields := "type: object\nproperties:\n  spec:\n    type: object\n    properties:\n"
	for i := range 20 {
		fields += fmt.Sprintf("      f%d: {type: string, maxLength: 10, x-kubernetes-validations: [{rule: \"self != 'a%d'\"}]}\n", i, i)
	}
	one := "{type: object, properties: {spec: {type: object, properties: {a: {type: string, x-kubernetes-validations: [{rule: \"self != 'a'\"}]}}}}}"
	for _, c := range []struct{ name, schema string }{
		{"types", twentyRules(false)}, {"20rules", twentyRules(true)}, {"1rule", one}, {"rulesOf20fields", fields},
	} {
		b.Run(c.name, func(b *testing.B) {
			crd, obj := definition(b, c.schema), object(b, typicalObject)
			use(b, New(crd, "v1"), obj)
			const schemas = 20
			kept := make([]*Schema, 0, schemas)
			before := heap()
			for range schemas {
				kept = append(kept, New(crd, "v1"))
			}
			unused := heap()
			for _, s := range kept {
				use(b, s, obj)
			}
			used := heap()
			size := kept[0].Size()
			for b.Loop() {
				use(b, New(crd, "v1"), obj)
			}
			b.ReportMetric(float64(unused-before)/schemas, "B/unused")
			b.ReportMetric(float64(used-unused)/schemas, "B/used")
			b.ReportMetric(float64(size), "B/estimated")
			b.ReportMetric(float64(crd.Spec.Versions[0].Size()), "B/encoded")
			runtime.KeepAlive(kept)
		})
	}
}

func process(b *testing.B, s *Schema, obj map[string]any) {
	if _, err := s.Prune(obj, false); err != nil {
		b.Fatal(err)
	}
	if err := s.Default(obj); err != nil {
		b.Fatal(err)
	}
}

func use(b *testing.B, s *Schema, obj map[string]any) {
	process(b, s, obj)
	if errs := s.ValidateUpdate(context.Background(), obj, obj); len(errs) > 0 {
		b.Fatal(errs)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
