// Package transcode turns an object's protobuf message into its JSON without building the object: the result is byte for byte what
// encoding/json returns for the object that Unmarshal reads from the message.
//
// The types of k8s.io/api have both a protobuf and a json tag on each field. From these a Plan is compiled once per type (plan.go): the
// JSON key of each field number, the order of the keys, and what is written for a field that the message does not have. Writing an object
// then takes two steps for each message in it: find where each field's value is (scan.go), and write the values in the order of the Go
// struct (write.go). The well-known types, which have a MarshalJSON and occur in most objects (times, quantities and the like), have a fast
// path in wellknown.go. A message that a plan cannot express, and only that message, is unmarshalled and marshalled by encoding/json.
//
// The generated code is the reference: what Unmarshal accepts, and what it makes of repeated, reordered and superseded fields. A fuzz
// target compares with it.
//
// It must not import anything else of skiff.
package transcode
