package cri

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/regular"
)

// TerminationMessageDir is the directory, in the directory of a pod, of the files that its containers leave their termination messages in: one per
// container, with a file for each of its runs.
const TerminationMessageDir = "containers"

// How much of a termination message is kept.
const (
	maxMessageBytes = 4096
	maxLogBytes     = 2048
	maxLogLines     = 80
)

// addTerminationMessage adds the container's termination message: what is in the file it was given, or, if it failed, its last lines of log. podDir
// is the pod's directory.
func (c *Container) addTerminationMessage(s *runtimeapi.ContainerStatus, podDir string) {
	message := c.terminationMessage(s, podDir)
	if message == "" {
		return
	}
	if c.Message != "" {
		c.Message += ": "
	}
	c.Message += message
}

func (c *Container) terminationMessage(s *runtimeapi.ContainerStatus, podDir string) string {
	message := ""
	if path := c.annotations[annotationTerminationPath]; path != "" {
		messageDir := filepath.Join(podDir, TerminationMessageDir, c.Name)
		for _, m := range s.Mounts {
			// A volume that is mounted at the same path is the container's, which may have put anything there.
			if m.ContainerPath != path || filepath.Dir(m.HostPath) != messageDir {
				continue
			}
			data, err := tail(m.HostPath, maxMessageBytes)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Sprintf("Error on reading termination log %s: %v", m.HostPath, err)
			}
			message = string(data)
		}
	}
	fallBackToLogs := c.annotations[annotationTerminationPolicy] == string(corev1.TerminationMessageFallbackToLogsOnError)
	if message == "" && fallBackToLogs && c.ExitCode != 0 && c.Reason != "ContainerCannotRun" {
		data, err := lastLogLines(c.LogPath)
		if err != nil {
			return fmt.Sprintf("Error on reading termination message from logs: %v", err)
		}
		message = string(data)
	}
	return message
}

// tail reads the last limit bytes of a file.
func tail(path string, limit int64) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > limit {
		if _, err := f.Seek(-limit, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// lastLogLines returns the end of what a container wrote, from the log that the runtime keeps of it. Its lines have a time, the stream, F for a full or P for a partial line,
// and the text.
func lastLogLines(path string) ([]byte, error) {
	data, err := tail(path, 64<<10)
	if err != nil {
		return nil, err
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	if n := len(lines); n > maxLogLines+1 {
		lines = lines[n-maxLogLines-1:]
	}
	var out []byte
	for _, line := range lines {
		fields := bytes.SplitN(line, []byte(" "), 4)
		if len(fields) < 4 || len(fields[1]) != len("stdout") {
			continue // the first line may be cut
		}
		text := fields[3]
		if bytes.HasPrefix(fields[2], []byte("P")) {
			text = bytes.TrimSuffix(text, []byte("\n"))
		}
		out = append(out, text...)
	}
	if len(out) > maxLogBytes {
		out = out[len(out)-maxLogBytes:]
	}
	return out, nil
}
