package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"skiff/internal/cluster/datadir"
)

const systemPrograms = "/usr/local/bin"

// installProgram copies the running program into a directory where only root can change it, and returns the path of the
// copy. What a service runs as root must not be a file that a user has built or downloaded and can replace.
func installProgram(directory string) (string, error) {
	if err := datadir.CheckOwnership(directory); err != nil {
		return "", fmt.Errorf("--bin-dir: %w", err)
	}
	directory, err := filepath.Abs(directory)
	if err != nil {
		return "", err
	}
	from, err := openSelf()
	if err != nil {
		return "", err
	}
	defer from.Close()
	part, err := os.CreateTemp(directory, ".skiff-*.part")
	if err != nil {
		return "", err
	}
	defer os.Remove(part.Name()) // fails after the rename
	if _, err := io.Copy(part, from); err != nil {
		part.Close()
		return "", err
	}
	if os.Geteuid() == 0 {
		err = part.Chown(0, 0)
	}
	if err := errors.Join(err, part.Chmod(0o755), part.Sync(), part.Close()); err != nil {
		return "", err
	}
	to := filepath.Join(directory, "skiff")
	return to, os.Rename(part.Name(), to)
}

// openSelf opens the running program, even if its file was replaced since.
func openSelf() (*os.File, error) {
	if f, err := os.Open("/proc/self/exe"); err == nil {
		return f, nil
	}
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}
