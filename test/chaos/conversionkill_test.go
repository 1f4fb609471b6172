//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const convertedGroup = "convert.chaos.example.com"

// convertedObject is an object with a webhook: what v1 has in spec.one, v2 has in spec.two.
type convertedObject struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   any            `json:"metadata"`
	Spec       map[string]int `json:"spec,omitempty"`
}

// convertObjects is the webhook.
func convertObjects(w http.ResponseWriter, r *http.Request) {
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		var o convertedObject
		if err := json.Unmarshal(raw.Raw, &o); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		from, to := "one", "two"
		if o.APIVersion = review.Request.DesiredAPIVersion; strings.HasSuffix(o.APIVersion, "/v1") {
			from, to = to, from
		}
		if n, ok := o.Spec[from]; ok {
			o.Spec = map[string]int{to: n}
		}
		converted, err := json.Marshal(o)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Raw: converted})
	}
	review.Request = nil
	_ = json.NewEncoder(w).Encode(review)
}

// convertedVersions returns the versions of the definition, of which one is stored.
func convertedVersions(stored string) (versions []any) {
	for name, field := range map[string]string{"v1": "one", "v2": "two"} {
		versions = append(versions, map[string]any{"name": name, "served": true, "storage": name == stored, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
			"properties": map[string]any{"spec": map[string]any{"type": "object", "properties": map[string]any{field: map[string]any{"type": "integer"}}}}}}})
	}
	return versions
}

// keepConverted writes objects in both versions of a definition with a conversion webhook, and changes which of them is stored. Both always say the same.
func (k *extensionKill) keepConverted(random *rand.Rand) {
	w := k.keeper(k.apis[0])
	definition := &kept{path: definitionsPath, name: "converteds." + convertedGroup}
	client := k.hooks.client("/convert")
	text, err := json.Marshal(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": "METADATA", "spec": map[string]any{
		"group": convertedGroup, "scope": "Namespaced", "names": map[string]any{"plural": "converteds", "kind": "Converted"}, "versions": convertedVersions("v1"),
		"conversion": map[string]any{"strategy": "Webhook", "webhook": map[string]any{"conversionReviewVersions": []string{"v1"},
			"clientConfig": map[string]any{"url": client.URL, "caBundle": client.CABundle}}}}})
	if err != nil {
		k.t.Error(err)
		return
	}
	definition.text = strings.Replace(string(text), `"METADATA"`, "%s", 1)
	for definition.value == "" && !k.t.Failed() {
		w.create(definition)
	}
	for _, version := range []string{"v1", "v2"} {
		k.awaitServedIn(w, definition, convertedGroup+"/"+version, "converteds")
	}
	objects := make([]*kept, 5)
	for i := range objects {
		objects[i] = &kept{name: fmt.Sprint("o", i)}
	}
	for !k.stopped.Load() && !k.t.Failed() {
		o, n := objects[random.IntN(len(objects))], 1+random.IntN(2)
		o.path = fmt.Sprintf("/apis/%s/v%d/namespaces/default/converteds", convertedGroup, n)
		o.text = fmt.Sprintf(`{"apiVersion":"%s/v%d","kind":"Converted","metadata":%%s}`, convertedGroup, n)
		switch {
		case random.IntN(10) == 0:
			w.update(definition, map[string]any{"spec": map[string]any{"versions": convertedVersions(fmt.Sprint("v", n))}})
		case o.value == "":
			w.create(o)
		case random.IntN(6) == 0:
			w.remove(o)
		default:
			w.check(o)
			w.update(o, map[string]any{"spec": map[string]any{[]string{"one", "two"}[n-1]: random.IntN(1000)}})
		}
		k.checkConverted(w, o)
	}
}

// checkConverted checks that both versions of an object say the same.
func (k *extensionKill) checkConverted(w *keeper, o *kept) {
	if o.value == "" {
		return
	}
	var specs [2]map[string]int
	for i := range specs {
		got := w.answered("GET", fmt.Sprintf("/apis/%s/v%d/namespaces/default/converteds/%s", convertedGroup, i+1, o.name))
		var object convertedObject
		if err := json.Unmarshal(got.body, &object); err != nil || !got.ok() || object.APIVersion != fmt.Sprintf("%s/v%d", convertedGroup, i+1) {
			k.t.Errorf("%s in v%d: %v", o.name, i+1, got)
			return
		}
		specs[i] = object.Spec
	}
	one, inFirst := specs[0]["one"]
	two, inSecond := specs[1]["two"]
	if one != two || inFirst != inSecond {
		k.t.Errorf("%s is %v in v1 and %v in v2", o.name, specs[0], specs[1])
	}
}
