package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	const text = "bin/one: go1.26.8\n\tpath\texample.com/cmd/one\n\tmod\texample.com\t(devel)\t\n\tdep\texample.com/a\tv1.2.3\th1:AAAA=\n\tdep\texample.com/b\tv0.1.0\n\t=>\t./build/b-v0.1.0\t(devel)\t\n\tbuild\tCGO_ENABLED=0\n" +
		"stage/two: go1.26.8\n\tpath\texample.com/cmd/two\n\tmod\texample.com\tv2.0.0\th1:BBBB=\n"
	var out bytes.Buffer
	if err := run(strings.NewReader(text), &out); err != nil {
		t.Fatal(err)
	}
	var doc document
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.Format != "CycloneDX" || len(doc.Components) != 2 {
		t.Fatalf("%+v", doc)
	}
	one, two := doc.Components[0], doc.Components[1]
	if one.Name != "one" || len(one.Components) != 3 || one.Components[0].PURL != "pkg:golang/example.com/a@v1.2.3" || one.Components[0].Properties[0].Value != "h1:AAAA=" ||
		one.Components[1].Properties[0] != (property{"go:replacedBy", "b-v0.1.0"}) {
		t.Errorf("%+v", one)
	}
	if two.Name != "two" || two.Version != "v2.0.0" || two.Components[0].PURL != "pkg:golang/stdlib@1.26.8" {
		t.Errorf("%+v", two)
	}
	for _, bad := range []string{"", "nonsense\n", "one: go1\n\tdep\tx\n"} {
		if err := run(strings.NewReader(bad), &out); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
