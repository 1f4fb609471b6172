// Package embedded holds the files that the skiff program carries: containerd, runc, CNI plugins, the pause image, kubectl and their licences.
// internal/bundle/build/build.sh makes them; without the build tag "bundle" there are none.
//
// It must not import anything else of skiff.
package embedded
