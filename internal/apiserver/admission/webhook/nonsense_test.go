package webhook_test

import (
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"skiff/test/nonsense"
)

const (
	// goodReview is a proper answer, with everything that an answer may have.
	goodReview = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"UID","allowed":true,"warnings":["careful"],"auditAnnotations":{"a":"b"},
		"status":{"status":"Success","message":"m","reason":"Invalid","code":200,"details":{"name":"n","causes":[{"message":"m"}],"retryAfterSeconds":1}}}}`
	// goodPatch is a proper patch, with every operation.
	goodPatch = `[{"op":"test","path":"/data/k","value":"v"},{"op":"add","path":"/data/new","value":"x"},{"op":"replace","path":"/data/k","value":"w"},
		{"op":"copy","from":"/data/new","path":"/data/copy"},{"op":"move","from":"/data/copy","path":"/data/moved"},{"op":"remove","path":"/data/moved"},
		{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"add","path":"/metadata/managedFields/0","value":{"manager":"m","operation":"Apply"}}]`
)

// FuzzAnswer has a mutating and a validating webhook answer with reviews and patches of nonsense. The client gets its object, as the name and namespace of the
// request have it, or an error of Kubernetes, and what is refused is not stored.
func FuzzAnswer(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed, seed%2 == 0)
	}
	c := newCluster(f)
	var review, patch atomic.Value
	answer := func(mutating bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var asked admissionv1.AdmissionReview
			if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			var answered map[string]any
			if text := review.Load().([]byte); json.Unmarshal(text, &answered) != nil {
				_, _ = w.Write(text)
				return
			}
			if response, ok := answered["response"].(map[string]any); ok {
				if response["uid"] == "UID" {
					response["uid"] = asked.Request.UID
				}
				if mutating {
					response["patch"], response["patchType"] = patch.Load(), "JSONPatch"
				}
			}
			_ = json.NewEncoder(w).Encode(answered)
		}
	}
	c.hooks.raw("/mutate", answer(true))
	c.hooks.raw("/validate", answer(false))
	in := &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceDefault}}
	on := rules{rule("", "v1", "configmaps", "CREATE")}
	c.mutating("m", mutatingHook{Name: "m.k8s.io", ClientConfig: c.byURL("/mutate"), Rules: on, NamespaceSelector: in, ReinvocationPolicy: ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy)})
	c.validating("v", validatingHook{Name: "v.k8s.io", ClientConfig: c.byURL("/validate"), Rules: on, NamespaceSelector: in})
	maps := c.api.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	f.Fuzz(func(t *testing.T, seed uint64, inPatch bool) {
		if mutator := nonsense.New(seed); inPatch {
			review.Store([]byte(goodReview))
			patch.Store(mutator.JSON(goodPatch))
		} else {
			review.Store(mutator.JSON(goodReview))
			patch.Store([]byte(goodPatch))
		}
		made, err := maps.Create(t.Context(), configMap("m", map[string]string{"k": "v"}), metav1.CreateOptions{})
		if err == nil {
			if made.Name != "m" || made.Namespace != metav1.NamespaceDefault {
				t.Errorf("created %s/%s", made.Namespace, made.Name)
			}
			if err := maps.Delete(t.Context(), "m", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			return
		}
		if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && !deniedBy(err) {
			t.Errorf("failed with %v", err)
		}
		if _, err := maps.Get(t.Context(), "m", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("what was refused is there: %v", err)
		}
	})
}

// deniedBy reports whether an error is what a webhook made it: with a reason of its own.
func deniedBy(err error) bool {
	status, ok := err.(apierrors.APIStatus)
	return ok && status.Status().Code >= 400
}
