package environment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/regular"
)

// maxEnvFile bounds a file of variables: the API's documentation allows 64 KiB.
const maxEnvFile = 64 << 10

// fileKey returns the value of a variable that is taken from a file in one of the pod's volumes. A container of the pod wrote that file, so it is
// opened below the volume's directory without ever leaving it.
func (in *Input) fileKey(ref *corev1.FileKeySelector) (value string, set bool, err error) {
	if in.VolumePath == nil {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	dir, err := in.VolumePath(ref.VolumeName)
	if err != nil {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef: %w", ref.VolumeName, err)
	}
	content, err := readBelow(dir, ref.Path)
	if err == nil {
		value, err = parseEnvFile(content, ref.Key)
	}
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file: %w", err)
	}
	if value == "" && !optional(ref.Optional) {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, value != "", nil
}

func readBelow(dir, path string) ([]byte, error) {
	f, err := regular.OpenBeneath(dir, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if len(content) > maxEnvFile {
		return nil, fmt.Errorf("%s has more than %d bytes", path, maxEnvFile)
	}
	return content, err
}

// parseEnvFile finds a key in a file of lines NAME='value'. Values stand in single quotes, over several lines if need be, and nothing inside
// is special. Empty lines and lines that begin with # are skipped, as is a comment behind a value. White space between = and the quote makes
// the value empty, as in a shell; anything else is an error, but only up to where the key was found.
func parseEnvFile(content []byte, key string) (string, error) {
	lines := strings.Split(strings.TrimSuffix(string(bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n"))), "\n"), "\n")
	for n := 0; n < len(lines); n++ {
		line := strings.TrimLeft(lines[n], " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		wrong := func(what string) error {
			return fmt.Errorf("invalid environment variable format at line %d: %s", n+1, what)
		}
		name, value, ok := strings.Cut(line, "=")
		switch {
		case !ok:
			return "", wrong("missing '='")
		case strings.TrimRight(name, " \t") == "":
			return "", wrong("empty variable name")
		case strings.TrimRight(name, " \t") != name:
			return "", wrong("whitespace before '=' is not allowed")
		}
		if strings.HasPrefix(value, " ") || strings.HasPrefix(value, "\t") {
			if name == key {
				return "", nil
			}
			continue
		}
		if !strings.HasPrefix(value, "'") {
			return "", wrong("value must be enclosed in single quotes")
		}
		text, after, err := quoted(value[1:], lines, &n)
		if err != nil {
			return "", err
		}
		if after = strings.TrimLeft(after, " \t"); after != "" && after[0] != '#' {
			return "", wrong("unexpected content after closing quote")
		}
		if name == key {
			return text, nil
		}
	}
	return "", nil
}

// quoted reads up to the closing quote, over lines if it must, and says what is behind it.
func quoted(rest string, lines []string, n *int) (text, after string, err error) {
	start := *n + 1
	for {
		before, behind, closed := strings.Cut(rest, "'")
		if closed {
			return text + before, behind, nil
		}
		text += rest + "\n"
		if *n++; *n >= len(lines) {
			return "", "", errors.New("invalid environment variable format starting at line " + fmt.Sprint(start) + ": unclosed single quote")
		}
		rest = lines[*n]
	}
}
