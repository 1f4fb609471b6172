// Package mounts reads the kernel's mount table, /proc/self/mountinfo.
//
// It must not import anything else of skiff.
package mounts
