// Package alone runs the tests of a package in namespaces of their own: with PIDs, network, mounts and /run apart from the machine's. What such
// tests leave behind ends with them, and several packages may run at once. Files elsewhere and cgroups are still the machine's.
//
// It must not import other packages of skiff: tests of all packages use it.
package alone
