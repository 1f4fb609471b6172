package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"skiff/internal/bundle"
	"skiff/internal/cluster/datadir"
)

func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "kubectl ...",
		Short:              "Run the kubectl that comes with skiff",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			program, err := findKubectl()
			if err != nil {
				return err
			}
			return syscall.Exec(program, append([]string{"kubectl"}, args...), os.Environ())
		},
	}
}

// findKubectl returns the path of the kubectl beside skiff, or of the one inside it, which is unpacked for this user.
func findKubectl() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if beside := filepath.Join(filepath.Dir(self), "kubectl"); executable(beside) {
		return beside, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "skiff")
	if os.Geteuid() == 0 { // sudo may have kept a user's HOME, and the user could have put any program there
		if err := datadir.CheckOwnership(dir); err != nil {
			return "", fmt.Errorf("refused to run the kubectl that was unpacked in %s: %w", dir, err)
		}
	}
	return bundle.Kubectl(dir)
}

func executable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
