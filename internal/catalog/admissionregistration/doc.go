// Package admissionregistration declares who has a say in what is admitted: webhooks, and policies in CEL with their
// bindings. Whether an expression compiles is not known here; the server that evaluates expressions checks that.
package admissionregistration
