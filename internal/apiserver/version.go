package apiserver

import (
	"runtime"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
)

// Version is the Kubernetes version that is served. Its suffix names the program that serves it.
const Version = "v1.37.1+skiff"

// BuildDate and GitCommit are set by the linker.
var (
	BuildDate = "1970-01-01T00:00:00Z"
	GitCommit = "unknown"
)

func versionInfo() apimachineryversion.Info {
	return apimachineryversion.Info{Major: "1", Minor: "37", EmulationMajor: "1", EmulationMinor: "37",
		MinCompatibilityMajor: "1", MinCompatibilityMinor: "36", GitVersion: Version, GitCommit: GitCommit, GitTreeState: "clean", BuildDate: BuildDate,
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: runtime.GOOS + "/" + runtime.GOARCH}
}
