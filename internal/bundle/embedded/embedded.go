//go:build bundle

package embedded

import _ "embed"

// Strings, not slices: they stay in the program file and take memory only while they are read.
var (
	//go:embed runtime.tar.zst
	Runtime string
	//go:embed runtime.tar.hash
	RuntimeHash string
	//go:embed kubectl.zst
	Kubectl string
	//go:embed kubectl.hash
	KubectlHash string
	//go:embed notices.zst
	Notices string
)
