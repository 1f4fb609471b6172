package review_test

import (
	"encoding/json"
	"reflect"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/admission/webhook/review"
)

// TestRequest: what is spliced is what encoding the whole review would give.
func TestRequest(t *testing.T) {
	for _, c := range []struct {
		name                 string
		request              admissionv1.AdmissionRequest
		object, old, options string
	}{
		{"empty", admissionv1.AdmissionRequest{}, "", "", ""},
		{"full", admissionv1.AdmissionRequest{Kind: metav1.GroupVersionKind{Group: "g", Version: "v", Kind: "K"}, Resource: metav1.GroupVersionResource{Group: "g", Version: "v", Resource: "ks"},
			SubResource: "s", RequestKind: &metav1.GroupVersionKind{Version: "w"}, RequestResource: &metav1.GroupVersionResource{Version: "w"}, RequestSubResource: "s", Name: `"n"`, Namespace: "ns",
			Operation: "UPDATE", DryRun: ptr.To(true), UserInfo: authenticationv1.UserInfo{Username: `,"object":null,"oldObject":null,"options":null}`, Groups: []string{"g"},
				Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}}}, `{"a":"b"}`, `{"c":[1,2]}`, `{"kind":"UpdateOptions"}`},
		{"delete", admissionv1.AdmissionRequest{Operation: "DELETE", DryRun: ptr.To(false)}, "", `{"c":{}}`, ""},
	} {
		bytes := func(text string) []byte {
			if text == "" {
				return nil
			}
			return []byte(text)
		}
		r, err := review.New(&c.request, bytes(c.object), bytes(c.old), bytes(c.options))
		if err != nil {
			t.Fatal(err)
		}
		body := r.Body("v1beta1", "the-uid")
		var got, want any
		if err := json.Unmarshal(append(body[0], body[1]...), &got); err != nil {
			t.Fatalf("%s: %v in %s%s", c.name, err, body[0], body[1])
		}
		whole := c.request
		whole.UID, whole.Object, whole.OldObject, whole.Options = "the-uid", runtime.RawExtension{Raw: bytes(c.object)}, runtime.RawExtension{Raw: bytes(c.old)}, runtime.RawExtension{Raw: bytes(c.options)}
		if whole.DryRun == nil {
			whole.DryRun = ptr.To(false)
		}
		encoded, err := json.Marshal(&admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1beta1"}, Request: &whole})
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(encoded, &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%s%s\nwant\n%s", c.name, body[0], body[1], encoded)
		}
	}
}

func TestVersion(t *testing.T) {
	for _, c := range []struct {
		accepted  []string
		want, err string
	}{
		{[]string{"v1", "v1beta1"}, "v1", ""},
		{[]string{"v2", "v1beta1", "v1"}, "v1beta1", ""},
		{[]string{"v2"}, "", "webhook does not accept known AdmissionReview versions (v1, v1beta1)"},
		{nil, "", "webhook does not accept known AdmissionReview versions (v1, v1beta1)"},
	} {
		got, err := review.Version(c.accepted)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != c.want || text != c.err {
			t.Errorf("%v: %q, %v", c.accepted, got, err)
		}
	}
}

// TestVerify: what a mutating webhook may not answer. The end-to-end tests have the rest.
func TestVerify(t *testing.T) {
	for _, c := range []struct {
		response  string
		version   string
		want, err string
	}{
		{`{"uid":"u","allowed":true,"patch":"W10=","patchType":"JSONPatch"}`, "v1", "[]", ""},
		{`{"uid":"u","allowed":true,"patch":"W10="}`, "v1", "", "webhook returned response.patch but not response.patchType"},
		{`{"uid":"u","allowed":true,"patchType":"JSONPatch"}`, "v1", "", "webhook returned response.patchType but not response.patch"},
		{`{"uid":"u","allowed":true,"patch":"W10=","patchType":""}`, "v1", "", `webhook returned invalid response.patchType of ""`},
		{`{"uid":"x","allowed":true}`, "v1", "", `expected response.uid="u", got "x"`},
		{`{"uid":"x","allowed":true,"patch":"W10="}`, "v1beta1", "[]", ""},
		{`{"allowed":true,"patch":"W10=","patchType":"Unknown"}`, "v1beta1", "[]", ""},
	} {
		answer, err := review.Decode([]byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/`+c.version+`","response":`+c.response+`}`), c.version)
		if err != nil {
			t.Fatal(err)
		}
		r, err := review.Verify(answer, c.version, "u", true)
		switch {
		case c.err != "" && (err == nil || err.Error() != c.err):
			t.Errorf("%s: %v, want %s", c.response, err, c.err)
		case c.err == "" && (err != nil || string(r.Patch) != c.want || *r.PatchType != "JSONPatch"):
			t.Errorf("%s: %v, %+v", c.response, err, r)
		}
	}
}
