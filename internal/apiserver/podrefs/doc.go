// Package podrefs lists the secrets and config maps that a pod refers to, for the node authorizer and for admission.
//
// It must not import anything else of skiff.
package podrefs
