// Package limitranger is the admission plugin LimitRanger. It applies the LimitRanges of a namespace: containers without requests or limits
// get the defaults, and pods and claims that ask for too little or too much are refused.
//
// It must not import the API server's root package, its store, its cache or another plugin: it reads through objects.Reader.
package limitranger
