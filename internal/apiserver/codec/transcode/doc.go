// Package transcode turns an object's protobuf message into its JSON without building the object: what comes out is byte for byte what
// encoding/json gives for the object that Unmarshal reads from the message.
//
// The types of k8s.io/api carry both a protobuf and a json tag on each field. From these a Plan is made once per type (plan.go): which
// field number is which JSON key, in which order keys come, what is written for a field that the message does not have. Writing an object
// is then two steps for each message in it: note where each field's value is (scan.go), and write the values in the order of the Go
// struct (write.go). Types that write their own JSON and are found in most objects (times, quantities and the like) have a short way in
// special.go. Whatever a plan cannot express is unmarshalled and given to encoding/json, that one message and no more.
//
// The package knows the generated code's habits, not its intentions: what Unmarshal accepts and what it makes of repeated, reordered
// and superseded fields is the reference, and a fuzz target compares with it.
package transcode
