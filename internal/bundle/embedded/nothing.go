//go:build !bundle

// Package embedded is what skiff carries along. internal/bundle/build/build.sh makes its files; without the build tag there is nothing.
package embedded

// What there is nothing of.
const Runtime, RuntimeHash, Kubectl, KubectlHash, Notices = "", "", "", "", ""
