package volume

import (
	"fmt"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"
)

// checkHostPath checks that a path of the node has the type of the hostPath volume, and creates it for the types DirectoryOrCreate and FileOrCreate.
func checkHostPath(source *corev1.HostPathVolumeSource) error {
	if err := noBacksteps(source.Path); err != nil {
		return fmt.Errorf("invalid HostPath `%s`: %w", source.Path, err)
	}
	want := corev1.HostPathUnset
	if source.Type != nil {
		want = *source.Type
	}
	switch want {
	case corev1.HostPathUnset:
		return nil
	case corev1.HostPathDirectoryOrCreate:
		if _, err := os.Stat(source.Path); os.IsNotExist(err) {
			return os.MkdirAll(source.Path, 0o755)
		}
		want = corev1.HostPathDirectory
	case corev1.HostPathFileOrCreate:
		// O_EXCL neither follows a link, which would make a file elsewhere, nor blocks on a FIFO that was made a moment ago.
		f, err := os.OpenFile(source.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err == nil {
			return f.Close()
		}
		if !os.IsExist(err) {
			return err
		}
		want = corev1.HostPathFile
	}
	called, ok := hostPathTypes[want]
	if !ok {
		return fmt.Errorf("%s is an invalid volume type", want)
	}
	info, err := os.Stat(source.Path)
	if err != nil {
		return fmt.Errorf("hostPath type check failed, %s is not a %s, unable to determine its type: %w", source.Path, called, err)
	}
	if is := fileType(info.Mode()); is != want {
		return fmt.Errorf("hostPath type check failed: %s is not a %s, it's a %s", source.Path, called, is)
	}
	return nil
}

var hostPathTypes = map[corev1.HostPathType]string{
	corev1.HostPathDirectory: "directory",
	corev1.HostPathFile:      "file",
	corev1.HostPathSocket:    "socket file",
	corev1.HostPathCharDev:   "character device",
	corev1.HostPathBlockDev:  "block device",
}

func fileType(mode fs.FileMode) corev1.HostPathType {
	switch {
	case mode.IsRegular():
		return corev1.HostPathFile
	case mode.IsDir():
		return corev1.HostPathDirectory
	case mode&fs.ModeSocket != 0:
		return corev1.HostPathSocket
	case mode&fs.ModeCharDevice != 0:
		return corev1.HostPathCharDev
	case mode&fs.ModeDevice != 0:
		return corev1.HostPathBlockDev
	}
	return corev1.HostPathType(mode.Type().String())
}
