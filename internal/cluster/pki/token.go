package pki

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// LoadToken reads a bearer token from a file, or makes one.
func LoadToken(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err == nil && len(strings.TrimSpace(string(data))) > 0 {
		return strings.TrimSpace(string(data)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	token := rand.Text() + rand.Text()
	return token, os.WriteFile(file, []byte(token+"\n"), 0o600)
}
