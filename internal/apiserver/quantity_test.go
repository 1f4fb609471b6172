// make sets this tag when it builds with the patches of internal/bundle/patches.
//go:build grpcnotrace

package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestQuantitiesAreBounded sends quantities whose canonical form takes upstream's parser minutes to compute when their exponent or length is large enough.
// Here they are just past the bound of internal/bundle/patches/apimachinery.patch, so that a server without the patch fails this test and does not hang.
func TestQuantitiesAreBounded(t *testing.T) {
	s := start(t)
	quota := func(name, cpu string) string {
		return `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"` + name + `"},"spec":{"hard":{"cpu":` + cpu + `}}}`
	}
	s.send("POST", inNamespace("resourcequotas"), quota("mine", `"1e1000"`)).ok()
	for what, cpu := range map[string]string{
		"exponent":          `"12345678901234567890e1001"`,
		"negative exponent": `"1e-1001"`,
		"wrapped exponent":  `"1e4294967297"`,
		"digits":            `"1` + strings.Repeat("0", 1000) + `"`,
		"number":            `1` + strings.Repeat("0", 1000),
	} {
		path := inNamespace("resourcequotas", "mine")
		for method, got := range map[string]answer{
			"create":          s.send("POST", inNamespace("resourcequotas"), quota("other", cpu)),
			"update":          s.send("PUT", path, quota("mine", cpu)),
			"merge patch":     s.send("PATCH", path, quota("mine", cpu), "Content-Type", "application/merge-patch+json"),
			"strategic patch": s.send("PATCH", path, quota("mine", cpu), "Content-Type", "application/strategic-merge-patch+json"),
			"JSON patch":      s.send("PATCH", path, `[{"op":"replace","path":"/spec/hard/cpu","value":`+cpu+`}]`, "Content-Type", "application/json-patch+json"),
			"apply":           s.send("PATCH", path+"?fieldManager=m&force=true", quota("mine", cpu), "Content-Type", "application/apply-patch+yaml"),
		} {
			// The code is upstream's for text that is no quantity: 400, 422 for a patch, 500 for an apply.
			if got.Code < http.StatusBadRequest || got.Code == http.StatusConflict {
				t.Errorf("%s by %s: %d %.200s", what, method, got.Code, got.Body)
			}
		}
	}
}
