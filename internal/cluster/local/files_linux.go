package local

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// fileFlags are the server's flags that name a file.
var fileFlags = map[string]bool{
	"tls-cert-file": true, "tls-private-key-file": true, "client-ca-file": true, "token-auth-file": true, "basic-auth-file": true, "oidc-ca-file": true, "authentication-config": true,
	"authentication-token-webhook-config-file": true, "authorization-policy-file": true, "authorization-webhook-config-file": true, "authorization-config": true, "service-account-key-file": true,
	"service-account-signing-key-file": true, "requestheader-client-ca-file": true, "proxy-client-cert-file": true, "proxy-client-key-file": true, "scheduler-config": true, "policy-config-file": true,
	"etcd-cafile": true, "etcd-certfile": true, "etcd-keyfile": true,
}

// filesDir is the directory in a node with the files that flags name.
const filesDir = "/etc/skiff"

// maxFile bounds the size of a file that a flag names.
const maxFile = 16 << 20

// takeFiles copies the files that flags name to the disk of node 1, which does not have this machine's files, and returns flags that name the copies.
func (l *Layout) takeFiles(flags []string) ([]string, error) {
	if err := os.MkdirAll(l.root(l.Nodes[0]), 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(l.root(l.Nodes[0]))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if err := root.MkdirAll(strings.TrimPrefix(filesDir, "/"), 0o700); err != nil {
		return nil, err
	}
	var out []string
	for i, flag := range flags {
		name, file, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if !fileFlags[name] || file == "" {
			out = append(out, flag)
			continue
		}
		info, err := os.Stat(file)
		if err == nil && (info.IsDir() || info.Size() > maxFile) {
			err = fmt.Errorf("%s is not a regular file of at most %d bytes", file, maxFile)
		}
		var data []byte
		if err == nil {
			data, err = os.ReadFile(file)
		}
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", name, err)
		}
		to := path.Join(filesDir, fmt.Sprintf("%d-%s%s", i, name, filepath.Ext(file)))
		if err := root.WriteFile(strings.TrimPrefix(to, "/"), data, 0o600); err != nil {
			return nil, err
		}
		out = append(out, "--"+name+"="+to)
	}
	return out, nil
}
