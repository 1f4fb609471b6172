package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skiff/internal/kubelet/volume"
)

// Clean unmounts what drivers have staged on a node whose pods are gone for good, drivers included: nobody is left to ask. It removes what the
// kubelet has written, and no other file.
func Clean(ctx context.Context, root string) error {
	dir := New(Options{Root: root}, nil).pluginDir()
	if err := volume.Unmount(ctx, dir); err != nil {
		return fmt.Errorf("failed to unmount the volumes of CSI drivers: %w", err)
	}
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			dirs = append(dirs, path)
		case e.Name() == recordName:
			return os.Remove(path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		_ = os.Remove(dirs[i]) // it is not empty
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("failed to remove what CSI drivers had mounted: %w", err)
	}
	return nil
}
