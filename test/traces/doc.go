// Package traces lists the processes, mounts, interfaces and other state of a machine, for tests that nothing is left behind. Such tests run in
// namespaces of their own (see alone), so that nothing changes meanwhile that is not theirs; of cgroups, which are the machine's, only the given
// ones are listed. It is empty on systems other than Linux.
//
// It must not import other packages of skiff: tests of several components use it.
package traces
