package regular

import (
	"errors"
	"os"
)

// ErrNotRegular is returned for a path that is not a regular file.
var ErrNotRegular = errors.New("not a regular file")

// Open opens the regular file at path for reading. It neither blocks nor follows a symbolic link in the last element of path.
func Open(path string) (*os.File, error) { return open(path) }

// OpenBeneath opens the regular file at path, which is relative to dir, for reading. Symbolic links are followed as long as they stay beneath dir.
func OpenBeneath(dir, path string) (*os.File, error) { return openBeneath(dir, path, true, false) }

// OpenListed opens the regular file or directory at path, which is relative to dir and has no symbolic link in it, for reading.
func OpenListed(dir, path string) (*os.File, error) { return openBeneath(dir, path, false, true) }
