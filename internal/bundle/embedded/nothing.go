//go:build !bundle

package embedded

// What there is nothing of.
const Runtime, RuntimeHash, Kubectl, KubectlHash, Notices = "", "", "", "", ""
