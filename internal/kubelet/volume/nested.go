package volume

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// makeNested makes directories in a volume for other volumes to be mounted on: runtimes cannot, the volume is read-only to them.
func makeNested(dir, volume string, pod *corev1.Pod) error {
	nested, err := nestedIn(volume, pod)
	if err != nil {
		return err
	}
	for _, inner := range nested {
		if err := os.MkdirAll(filepath.Join(dir, inner), 0o755); err != nil {
			return fmt.Errorf("unable to create nested volume mountpoints: %w", err)
		}
	}
	return nil
}

// nestedIn returns the paths in a volume, as containers see it, that other volumes are mounted on; not those in such a volume again, which are
// for that one to have.
func nestedIn(volume string, pod *corev1.Pod) ([]string, error) {
	var nested []string
	for c := range containers(pod) {
		var all []string
		for _, mount := range c.VolumeMounts {
			all = append(all, path.Clean(mount.MountPath))
		}
		slices.Sort(all)
		for _, mount := range c.VolumeMounts {
			at := path.Clean(mount.MountPath)
			if mount.Name != volume {
				continue
			}
			if strings.HasPrefix(at, "../") {
				return nil, fmt.Errorf("invalid container mount point %v", at)
			}
			var found []string
			for _, other := range all {
				inner, ok := strings.CutPrefix(other, at+"/")
				deeper := slices.ContainsFunc(found, func(outer string) bool { return inner == outer || strings.HasPrefix(inner, outer+"/") })
				if ok && !deeper {
					found = append(found, inner)
				}
			}
			nested = append(nested, found...)
		}
	}
	return nested, nil
}
