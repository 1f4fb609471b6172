package cri

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// How much of what a container says at its end is kept.
const (
	maxMessageBytes = 4096
	maxLogBytes     = 2048
	maxLogLines     = 80
)

// addTerminationMessage adds what the container left as its last words: in a file it was given, or, if it failed, its last lines of log.
func (c *Container) addTerminationMessage(s *runtimeapi.ContainerStatus) {
	message := c.terminationMessage(s)
	if message == "" {
		return
	}
	if c.Message != "" {
		c.Message += ": "
	}
	c.Message += message
}

func (c *Container) terminationMessage(s *runtimeapi.ContainerStatus) string {
	message := ""
	if path := c.annotations[annotationTerminationPath]; path != "" {
		for _, m := range s.Mounts {
			if m.ContainerPath != path {
				continue
			}
			data, err := tail(m.HostPath, maxMessageBytes)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Sprintf("Error on reading termination log %s: %v", m.HostPath, err)
			}
			message = string(data)
		}
	}
	wantsLog := c.annotations[annotationTerminationPolicy] == string(corev1.TerminationMessageFallbackToLogsOnError)
	if message == "" && wantsLog && c.ExitCode != 0 && c.Reason != "ContainerCannotRun" {
		data, err := lastLogLines(c.LogPath)
		if err != nil {
			return fmt.Sprintf("Error on reading termination message from logs: %v", err)
		}
		message = string(data)
	}
	return message
}

// tail reads the end of a file.
func tail(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a regular file") // a container may have put something else there
	}
	if info.Size() > limit {
		if _, err := f.Seek(-limit, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// lastLogLines is the end of what a container wrote, out of the log that the runtime keeps of it: lines of time, stream, a mark whether the
// line is whole, and what was written.
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
			continue // the part of a line that the window cut
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
