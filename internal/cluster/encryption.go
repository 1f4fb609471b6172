package cluster

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"skiff/internal/cluster/datadir"
)

// encryptionDir is the directory in the data directory of the key that --encrypt-secrets makes.
const encryptionDir = "encryption"

// EncryptionConfig says what is encrypted in the store.
type EncryptionConfig struct {
	File   string // --encryption-provider-config
	Reload bool   // --encryption-provider-config-automatic-reload
	// Secrets is --encrypt-secrets: use a key in the data directory, which is made if there is none.
	Secrets bool
}

func (c EncryptionConfig) check() error {
	switch {
	case c.Reload && c.File == "":
		return errors.New("--encryption-provider-config-automatic-reload must be set with --encryption-provider-config")
	case c.Secrets && c.File != "":
		return errors.New("--encrypt-secrets and --encryption-provider-config exclude each other: the former makes a configuration of its own")
	}
	return nil
}

// secretsConfig is what --encrypt-secrets writes.
const secretsConfig = `# Made by skiff --encrypt-secrets. Whoever has this file can read the Secrets in etcd and in its snapshots, and nobody can without it: keep a copy elsewhere.
# skiff applies a change within a minute and then encrypts all Secrets with the first key. To replace the key, put another one before it (head -c 32 /dev/urandom | base64)
# and remove the old one once skiff has said that it rewrote the Secrets.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox:
      keys:
      - name: key1
        secret: %s
  - identity: {} # reads the Secrets that were stored before
`

// locate returns the configuration of encryption to use; an empty file if nothing is encrypted. own reports that it is that of --encrypt-secrets, which is used as
// long as it is in the data directory: without it the Secrets could not be read.
func (c EncryptionConfig) locate(dataDir string) (file string, own bool, err error) {
	if c.File != "" {
		return c.File, false, nil
	}
	file = filepath.Join(dataDir, encryptionDir, "config.yaml")
	switch _, err := os.Lstat(file); {
	case err == nil:
		return file, true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", false, err
	case !c.Secrets:
		return "", false, nil
	}
	if err := makeSecretsConfig(file); err != nil {
		return "", false, fmt.Errorf("failed to make a key for --encrypt-secrets: %w", err)
	}
	return file, true, nil
}

// makeSecretsConfig writes a configuration with a new key, which only its owner may read. It is on the disk before anything is encrypted with the key.
func makeSecretsConfig(file string) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	key := make([]byte, 32)
	rand.Read(key) // never fails
	part := file + datadir.PartSuffix
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, secretsConfig, base64.StdEncoding.EncodeToString(key))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(part))
	}
	if err := os.Rename(part, file); err != nil {
		return err
	}
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
