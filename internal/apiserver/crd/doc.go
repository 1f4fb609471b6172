// Package crd serves custom resources: it follows the CustomResourceDefinitions, decides about their names, has their resources served and withdrawn, and
// removes the objects of those that are deleted.
//
// What a definition says of its objects is in catalog/custom, the decision about names and conditions in catalog/apiextensions. This package is the loop
// around both. It must not import the API server's root package, front, verbs or its cache: the root package implements Host.
package crd
