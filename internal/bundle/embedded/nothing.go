//go:build !bundle

package embedded

// Without the build tag there is no bundle.
const Runtime, RuntimeHash, Kubectl, KubectlHash, Notices = "", "", "", "", ""
