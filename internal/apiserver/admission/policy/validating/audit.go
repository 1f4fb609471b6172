package validating

import (
	"encoding/json"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"skiff/internal/apiserver/admission"
)

// failure is a failed validation as the audit event of the request has it.
type failure struct {
	Message           string                                     `json:"message"`
	Policy            string                                     `json:"policy"`
	Binding           string                                     `json:"binding"`
	ExpressionIndex   int                                        `json:"expressionIndex"`
	ValidationActions []admissionregistrationv1.ValidationAction `json:"validationActions"`
}

const (
	maxFailures        = 50
	maxAnnotationValue = 10 << 10
	failureAnnotation  = "validation.policy.admission.k8s.io/validation_failure"
)

// publishFailures annotates the audit event with the validations that failed under bindings with the action Audit.
func (e *evaluation) publishFailures() {
	if len(e.failures) == 0 {
		return
	}
	value, err := json.Marshal(e.failures[:min(len(e.failures), maxFailures)])
	if err == nil { // texts and numbers can always be encoded
		_ = e.subject.AddAnnotation(admission.Annotation{Key: failureAnnotation, Value: string(value)}) // the key is valid
	}
}

// annotations are the values of the audit annotations of a policy, without duplicates, by key.
type annotations map[string][]string

func (a annotations) add(key, value string) {
	value = value[:min(len(value), maxAnnotationValue)]
	if !slices.Contains(a[key], value) {
		a[key] = append(a[key], value)
	}
}

func (a annotations) publish(policy string, attributes *admission.Attributes) {
	for key, values := range a {
		// The key was validated when the policy was written; an invalid one of an older server is not recorded, as upstream does.
		_ = attributes.AddAnnotation(admission.Annotation{Key: policy + "/" + key, Value: strings.Join(values, ", ")})
	}
}
