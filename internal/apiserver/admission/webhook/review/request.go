package review

import (
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
)

// Request is a review that is to be sent, without the uid.
type Request struct {
	tail []byte
}

// New returns the review of a request. object, old and options are JSON, nil for null. Of r everything is sent but uid, object, oldObject and options.
func New(r *admissionv1.AdmissionRequest, object, old, options []byte) (*Request, error) {
	head := *r
	head.UID = ""
	dryRun := head.DryRun != nil && *head.DryRun
	head.DryRun = nil
	// The encoding ends with ,"object":null,"oldObject":null,"options":null}, which is replaced. It begins with {"uid":"",
	fields, err := json.Marshal(&head)
	if err != nil {
		return nil, err
	}
	const start, end = `{"uid":""`, `,"object":null,"oldObject":null,"options":null}`
	if len(fields) < len(start)+len(end) || string(fields[:len(start)]) != start || string(fields[len(fields)-len(end):]) != end {
		return nil, fmt.Errorf("unexpected encoding of an AdmissionRequest: %s", fields)
	}
	fields = fields[len(start) : len(fields)-len(end)]
	tail := make([]byte, 0, len(fields)+len(object)+len(old)+len(options)+100)
	tail = append(tail, fields...)
	tail = appendField(tail, "object", object)
	tail = appendField(tail, "oldObject", old)
	tail = appendField(tail, "dryRun", fmt.Appendf(nil, "%t", dryRun))
	tail = appendField(tail, "options", options)
	return &Request{append(tail, "}}"...)}, nil
}

func appendField(b []byte, name string, value []byte) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	if value == nil {
		return append(b, "null"...)
	}
	return append(b, value...)
}

// Body returns the review in a version, with a uid, in two parts of which the second is shared.
func (r *Request) Body(version, uid string) [2][]byte {
	return [2][]byte{fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"%s/%s","request":{"uid":%q`, admissionv1.GroupName, version, uid), r.tail}
}

// Version returns the first of the versions that a webhook accepts and this package knows.
func Version(accepted []string) (string, error) {
	for _, v := range accepted {
		if v == admissionv1.SchemeGroupVersion.Version || v == admissionv1beta1.SchemeGroupVersion.Version {
			return v, nil
		}
	}
	return "", fmt.Errorf("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
}
