// Command definitiondiff compares how the catalog judges CustomResourceDefinitions of nonsense with how upstream does: created, and as an update of the last
// valid one. It prints the differences and exits with status 1 if there are any. It is a module of its own, because it needs upstream's validation.
//
// It must not import anything of skiff but the catalog's declaration, which is what is compared, and what makes nonsense.
package main
