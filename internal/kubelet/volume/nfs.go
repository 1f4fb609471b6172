package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// mountTimeout is how long the mount program may take: a server that does not answer must not hold a pod for ever.
const mountTimeout = 2 * time.Minute

// nfs mounts a directory of an NFS server, with the mount program of the node, which has to have NFS' own helper.
func (m *Manager) nfs(ctx context.Context, dir string, source *corev1.NFSVolumeSource, readOnly bool, options []string) error {
	if there, err := mountedAt(dir); there || err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if readOnly {
		options = append(options[:len(options):len(options)], "ro")
	}
	server := source.Server
	if strings.Contains(server, ":") && !strings.HasPrefix(server, "[") { // an IPv6 address
		server = "[" + server + "]"
	}
	arguments := []string{"-t", "nfs"}
	if len(options) > 0 {
		arguments = append(arguments, "-o", strings.Join(options, ","))
	}
	arguments = append(arguments, server+":"+source.Path, dir)
	ctx, cancel := context.WithTimeout(ctx, mountTimeout)
	defer cancel()
	c := exec.CommandContext(ctx, m.opts.MountProgram, arguments...)
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("mount failed: %w\nMounting command: %s\nMounting arguments: %s\nOutput: %s", err, m.opts.MountProgram, strings.Join(arguments, " "), out)
	if there, checkErr := mountedAt(dir); there || checkErr != nil {
		return errors.Join(err, checkErr)
	}
	return errors.Join(err, os.Remove(dir))
}
