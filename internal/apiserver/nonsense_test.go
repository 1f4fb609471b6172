package apiserver_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/store"
	"skiff/test/nonsense"
)

// nonsenseSeeds is how many documents of nonsense each target is given as seeds: 10,000 of them take minutes.
var nonsenseSeeds = flag.Uint64("nonsense", 60, "from how many seeds documents of nonsense are made")

// mayFailCreate reports whether an answer to a create is one of upstream's that is no client's error.
func mayFailCreate(a answer) bool {
	return bytes.Contains(a.Body, []byte("resourceVersion should not be set on objects to be created"))
}

// FuzzServedDefinition creates definitions that were changed at random. Those that are accepted become established, serve objects of nonsense in every
// version and form, are described, and are deleted with all that they had.
func FuzzServedDefinition(f *testing.F) {
	for seed := range *nonsenseSeeds {
		f.Add(seed, uint8(seed%2))
	}
	s := start(f)
	f.Fuzz(func(t *testing.T, seed uint64, base uint8) {
		s, mutator := &server{t, s.api, s.store}, nonsense.New(seed)
		kind := int(base) % len(nonsense.Definitions)
		text := mutator.JSON(nonsense.Definitions[kind])
		made := s.send("POST", definitions, text)
		proper(t, made, mayFailCreate(made))
		if made.Code != http.StatusCreated {
			return
		}
		crd := into[apiextensionsv1.CustomResourceDefinition](made)
		path := definitions + "/" + crd.Name
		s.eventually("established", func() bool {
			crd = into[apiextensionsv1.CustomResourceDefinition](s.send("GET", path, nil).ok())
			return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
		})
		for i := range crd.Spec.Versions {
			if v := &crd.Spec.Versions[i]; v.Served {
				s.useVersion(crd, v.Name, mutator.JSON(nonsense.Objects[kind]))
			}
		}
		s.send("DELETE", path, nil).ok()
		s.eventually("deleted", func() bool { return s.send("GET", path, nil).Code == http.StatusNotFound })
		if left, err := s.store.List(t.Context(), "/registry/"+crd.Spec.Group+"/"+crd.Spec.Names.Plural+"/", store.ListOptions{}); err != nil || len(left.KVs) > 0 {
			t.Fatalf("%d objects are left of %s: %v", len(left.KVs), text, err)
		}
	})
}

// useVersion does with a version of a definition what clients do.
func (s *server) useVersion(crd *apiextensionsv1.CustomResourceDefinition, version string, text []byte) {
	s.t.Helper()
	converted := crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter // by a webhook that is not there
	groupVersion := "/apis/" + crd.Spec.Group + "/" + version
	list := groupVersion + "/" + crd.Spec.Names.Plural
	objects := list
	if crd.Spec.Scope == apiextensionsv1.NamespaceScoped {
		objects = groupVersion + "/namespaces/default/" + crd.Spec.Names.Plural
	}
	var root any
	if err := json.Unmarshal(text, &root); err != nil {
		s.t.Fatal(err)
	}
	if fields, ok := root.(object); ok {
		fields["apiVersion"], fields["kind"] = crd.Spec.Group+"/"+version, crd.Spec.Names.Kind
	}
	made := s.send("POST", objects, root)
	proper(s.t, made, converted || mayFailCreate(made))
	if made.Code == http.StatusCreated {
		name := into[metav1.PartialObjectMetadata](made).Name
		for _, got := range []answer{
			s.send("GET", objects+"/"+name, nil).ok(),
			s.send("PUT", objects+"/"+name, made.Body),
			s.send("PATCH", objects+"/"+name, text, "Content-Type", string(types.MergePatchType)),
			s.send("PATCH", objects+"/"+name+"?fieldManager=a&force=true", text, "Content-Type", string(types.ApplyYAMLPatchType)),
			s.send("GET", objects+"/"+name+"/status", nil), s.send("GET", objects+"/"+name+"/scale", nil),
			s.send("PATCH", objects+"/"+name+"/status", text, "Content-Type", string(types.MergePatchType)),
			s.send("PATCH", objects+"/"+name+"/scale", `{"spec":{"replicas":2}}`, "Content-Type", string(types.MergePatchType)),
		} {
			proper(s.t, got, converted || bytes.Contains(got.Body, []byte("smd typed")) || bytes.Contains(got.Body, []byte("failed to create typed patch object"))) // as upstream
		}
	}
	for _, accept := range []string{"application/json", "application/json;as=Table;g=meta.k8s.io;v=v1", "application/yaml", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"} {
		proper(s.t, s.send("GET", list, nil, "Accept", accept), converted)
	}
	if described := s.send("GET", "/openapi/v3/"+strings.TrimPrefix(groupVersion, "/"), nil).ok(); !json.Valid(described.Body) {
		s.t.Fatalf("OpenAPI is %s", described.Body)
	}
}

// FuzzCustomObject writes objects of nonsense of a definition that has a bit of everything, in every way.
func FuzzCustomObject(f *testing.F) {
	for seed := range *nonsenseSeeds {
		f.Add(seed)
	}
	s := start(f)
	s.define(nonsense.Definitions[0])
	const things = "/apis/nonsense.example.com/v1/namespaces/default/things"
	s.send("POST", things, strings.Replace(nonsense.Objects[0], `"name":"a"`, `"name":"b"`, 1)).ok()
	f.Fuzz(func(t *testing.T, seed uint64) {
		s := &server{t, s.api, s.store}
		text := nonsense.New(seed).JSON(nonsense.Objects[0])
		for _, query := range []string{"?dryRun=All", "?dryRun=All&fieldValidation=Strict"} {
			made := s.send("POST", things+query, text)
			proper(t, made, mayFailCreate(made))
			proper(t, s.send("PUT", things+"/b"+query, text), false)
			for _, subresource := range []string{"", "/status", "/scale"} {
				proper(t, s.send("PUT", things+"/b"+subresource+query, text), false)
				proper(t, s.send("PATCH", things+"/b"+subresource+query, text, "Content-Type", string(types.MergePatchType)), false)
				proper(t, s.send("PATCH", things+"/b"+subresource+query+"&fieldManager=a", text, "Content-Type", string(types.ApplyYAMLPatchType)), true) // as upstream
			}
		}
		s.send("GET", things+"/b", nil).ok()
	})
}

// FuzzConversionAnswer has a conversion webhook answer with changed reviews. What is read is the object, in the version that was asked for, or an error that
// names the webhook.
func FuzzConversionAnswer(f *testing.F) {
	for seed := range *nonsenseSeeds {
		f.Add(seed)
	}
	s, w := start(f), newConversionWebhook(f)
	s.define(endpointsDefinition(w.spec(), "v1"))
	f.Fuzz(func(t *testing.T, seed uint64) {
		s := &server{t, s.api, s.store}
		w.answerWith(nil)
		made := into[metav1.PartialObjectMetadata](s.send("POST", spotsV1, spotV1("a", "h:1")).ok())
		w.answerWith(func(rw http.ResponseWriter, review object) {
			text, err := json.Marshal(review)
			if err != nil {
				panic(err)
			}
			_, _ = rw.Write(nonsense.New(seed).JSON(string(text)))
		})
		for _, got := range []answer{s.send("GET", spotsV2+"/a", nil), s.send("PATCH", spotsV2+"/a", `{"spec":{"port":"2"}}`, "Content-Type", string(types.MergePatchType))} {
			proper(t, got, true)
			if got.Code >= 400 {
				if text := into[metav1.Status](got).Message; got.Code >= 500 && !strings.Contains(text, "conversion webhook for example.com/v") {
					t.Fatalf("answered %s", got.Body)
				}
				continue
			}
			if is := into[metav1.PartialObjectMetadata](got); is.Name != made.Name || is.UID != made.UID || is.APIVersion != "example.com/v2" || is.Kind != "Spot" {
				t.Fatalf("answered %s", got.Body)
			}
		}
		proper(t, s.send("GET", spotsV2, nil), true)
		s.send("GET", spotsV1+"/a", nil).ok()
		s.send("DELETE", spotsV1+"/a", nil).ok()
	})
}

// FuzzExtension creates APIServices, webhook configurations and policies that were changed at random. Whatever of them is accepted, the server answers: what
// is built in is discovered, and writes are answered by what was accepted.
func FuzzExtension(f *testing.F) {
	for seed := range *nonsenseSeeds {
		f.Add(seed, uint8(seed))
	}
	s := startAdmitting(f)
	for _, e := range nonsense.Extensions[4:6] { // of bindings that are changed, and of policies
		s.send("POST", e.Path, strings.Replace(e.Document, `"name":"nonsense"`, `"name":"kept"`, 1)).ok()
	}
	s.send("POST", inNamespace("configmaps"), configMap("limits")).ok()
	f.Fuzz(func(t *testing.T, seed uint64, kind uint8) {
		s, e := &server{t, s.api, s.store}, nonsense.Extensions[int(kind)%len(nonsense.Extensions)]
		text, query := nonsense.New(seed).JSON(e.Document), ""
		if strings.HasSuffix(e.Path, "webhookconfigurations") {
			query = "?dryRun=All"
		}
		made := s.send("POST", e.Path+query, text)
		proper(t, made, mayFailCreate(made))
		written := s.send("POST", inNamespace("configmaps")+"?dryRun=All", configMap("a", "k", "v"))
		proper(t, written, bytes.Contains(written.Body, []byte("olicy")))
		if groups := into[metav1.APIGroupList](s.send("GET", "/apis", nil).ok()); len(groups.Groups) < 10 {
			t.Fatalf("%d groups are discovered", len(groups.Groups))
		}
		s.send("GET", "/apis", nil, "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").ok()
		if made.Code == http.StatusCreated && query == "" {
			s.send("DELETE", fmt.Sprint(e.Path, "/", into[metav1.PartialObjectMetadata](made).Name), nil).ok()
		}
	})
}
