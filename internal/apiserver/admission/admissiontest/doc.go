// Package admissiontest builds admission attributes for tests of admission plugins, runs them through a plugin and compares the outcome.
//
// It must not import a plugin: every plugin's tests import it.
package admissiontest
