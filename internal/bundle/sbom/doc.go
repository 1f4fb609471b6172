// Command sbom turns the output of `go version -m PROGRAM...` on standard input into a software bill of materials (CycloneDX 1.6, JSON) on standard output.
//
// It must not import anything else of skiff.
package main
