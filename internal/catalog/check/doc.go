// Package check is how the group packages of the catalog write down their validation: a Part collects what is wrong
// with one part of an object. It builds a field path only for what is wrong, so that the usual, valid object
// costs nearly nothing.
package check
